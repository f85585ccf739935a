// Names of kernels: read from the program's own symbol table, since kernels have internal linkage.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include "tests/cuda_emulation/emulation.h"

namespace penstock::cuda_emulation {

namespace {

std::uintptr_t load_address() {
  std::uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uintptr_t*>(out) = info->dlpi_addr;
        return 1;  // the first is the program
      },
      &address);
  return address;
}

template <class T>
T read(const std::vector<char>& file, std::size_t offset) {
  T value;
  std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

// Functions by their address in the file.
std::unordered_map<std::uintptr_t, std::string> read_symbols() {
  std::ifstream in("/proc/self/exe", std::ios::binary | std::ios::ate);
  std::vector<char> file(static_cast<std::size_t>(in.tellg()));
  in.seekg(0);
  in.read(file.data(), static_cast<std::streamsize>(file.size()));
  const auto header = read<ElfW(Ehdr)>(file, 0);
  std::unordered_map<std::uintptr_t, std::string> symbols;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const auto table = read<ElfW(Shdr)>(file, header.e_shoff + i * header.e_shentsize);
    if (table.sh_type != SHT_SYMTAB) continue;
    const auto names = read<ElfW(Shdr)>(file, header.e_shoff + table.sh_link * header.e_shentsize);
    for (std::size_t at = 0; at < table.sh_size; at += sizeof(ElfW(Sym))) {
      const auto symbol = read<ElfW(Sym)>(file, table.sh_offset + at);
      if ((symbol.st_info & 0xf) != STT_FUNC || symbol.st_value == 0) continue;
      symbols.emplace(symbol.st_value, file.data() + names.sh_offset + symbol.st_name);
    }
  }
  return symbols;
}

// "void a::(anonymous namespace)::f<b::C>(int*)" becomes "f<b::C>".
std::string shortened(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> whole(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0) return mangled;
  std::string name = whole.get();
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (std::size_t at; (at = name.find(kAnonymous)) != std::string::npos;) {
    name.erase(at, kAnonymous.size());
  }
  // From behind the last space or namespace up to the parameters, which begin at the first
  // parenthesis outside of template arguments.
  std::size_t begin = 0, end = 0;
  for (int depth = 0; end < name.size() && (depth > 0 || name[end] != '('); ++end) {
    depth += (name[end] == '<') - (name[end] == '>');
    if (depth == 0 && (name[end] == ' ' || name[end] == ':')) begin = end + 1;
  }
  return name.substr(begin, end - begin);
}

}  // namespace

std::string name_of_function(const void* function) {
  static const std::unordered_map<std::uintptr_t, std::string> symbols = read_symbols();
  static std::mutex mutex;
  static std::unordered_map<std::uintptr_t, std::string> names;
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(function) - load_address();
  const std::lock_guard lock(mutex);
  std::string& name = names[address];
  if (!name.empty()) return name;
  const auto found = symbols.find(address);
  if (found != symbols.end()) return name = shortened(found->second);
  std::ostringstream text;
  text << "at 0x" << std::hex << address;
  return name = text.str();
}

}  // namespace penstock::cuda_emulation
