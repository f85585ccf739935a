// Library code never exits, aborts or prints: no archive refers to a function that does.
#include <sstream>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/repo/command.h"
#include "tests/repo/manifest.h"

namespace penstock::repo_test {
namespace {

// As nm prints them; the streams by their mangled names.
const std::set<std::string>& forbidden() {
  static const std::set<std::string> kForbidden = {
      "exit",       "_exit",      "_Exit",      "quick_exit",    "abort",     "__assert_fail",
      "MPI_Abort",  "printf",     "vprintf",    "__printf_chk",  "puts",      "putchar",
      "perror",     "stdout",     "stderr",     "_ZSt4cout",     "_ZSt4cerr", "_ZSt4clog",
      "_ZSt5wcout", "_ZSt5wcerr", "_ZSt5wclog", "__vprintf_chk", "_IO_putc",  "putc_unlocked"};
  return kForbidden;
}

// One use of a forbidden symbol by one member of an archive.
struct Use {
  std::string archive, member, symbol;
  bool operator<(const Use& other) const {
    return std::tie(archive, member, symbol) < std::tie(other.archive, other.member, other.symbol);
  }
};

// The undefined symbols of every member: nm prints "archive:member:   U symbol".
std::set<Use> undefined_symbols(const std::filesystem::path& archive) {
  std::set<Use> result;
  std::istringstream lines(run(PENSTOCK_NM " -A -u '" + archive.string() + "'"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t member = archive.string().size() + 1;
    const std::size_t end = line.find(':', member);
    const std::size_t symbol = line.rfind(' ');
    if (end == std::string::npos || symbol == std::string::npos) {
      throw std::runtime_error("nm printed '" + line + "'; expected 'archive:member: U symbol'");
    }
    result.insert(
        {archive.filename().string(), line.substr(member, end - member), line.substr(symbol + 1)});
  }
  return result;
}

std::set<Use> forbidden_uses(const std::filesystem::path& archive) {
  std::set<Use> result;
  for (const Use& use : undefined_symbols(archive)) {
    if (forbidden().contains(use.symbol)) result.insert(use);
  }
  return result;
}

// Lines "archive member symbol reason…"; # begins a comment.
std::set<Use> read_allowlist() {
  std::set<Use> result;
  std::istringstream lines(read_file(source_dir() / "tests/repo/symbol_allowlist.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    Use use;
    std::string reason;
    words >> use.archive >> use.member >> use.symbol >> reason;
    EXPECT_FALSE(reason.empty()) << "no reason given: " << line;
    result.insert(use);
  }
  return result;
}

TEST(ArchiveSymbols, CatchesEachForbiddenCall) {
  std::set<std::string> caught;
  for (const Use& use : forbidden_uses(PENSTOCK_FORBIDDEN_ARCHIVE)) caught.insert(use.symbol);
  const std::set<std::string> expected = {"exit",      "quick_exit", "_exit",    "_Exit",  "abort",
                                          "printf",    "puts",       "putchar",  "stdout", "stderr",
                                          "_ZSt4cout", "_ZSt4cerr",  "_ZSt4clog"};
  EXPECT_EQ(caught, expected);
}

TEST(ArchiveSymbols, LibrariesNeverExitAbortOrPrint) {
  const Manifest manifest = read_manifest();
  ASSERT_GE(manifest.archives.size(), 2U);
  std::set<Use> unused = read_allowlist();
  std::set<std::string> members;
  for (const std::filesystem::path& archive : manifest.archives) {
    const std::set<Use> symbols = undefined_symbols(archive);
    ASSERT_FALSE(symbols.empty()) << archive;
    for (const Use& use : symbols) members.insert(use.member);
    for (const Use& use : forbidden_uses(archive)) {
      EXPECT_EQ(unused.erase(use), 1U)
          << use.archive << " " << use.member << " refers to " << use.symbol
          << "; throw or write to a Log, or give a reason in tests/repo/symbol_allowlist.txt";
    }
  }
  for (const Use& use : unused) {  // a build without MPI lacks some of the members
    EXPECT_FALSE(members.contains(use.member))
        << "no longer needed in symbol_allowlist.txt: " << use.archive << " " << use.member << " "
        << use.symbol;
  }
}

}  // namespace
}  // namespace penstock::repo_test
