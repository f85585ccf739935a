// penstock-ckpt verify
#include <iostream>
#include <map>

#include <nlohmann/json.hpp>

#include "checkpoint/error.h"
#include "checkpoint/inspect.h"
#include "tools/ckpt/arguments.h"

namespace penstock::tools {

namespace {

using checkpoint::Reader;
using nlohmann::ordered_json;

// What is wrong with one checkpoint. `about` is filled in as far as it can be read.
std::vector<std::string> faults_of(const std::string& directory,
                                   const std::optional<std::string>& tag, std::string& about) {
  try {
    const Reader reader = Reader::inspect(directory, tag);
    std::uint64_t bytes = 0;
    for (const auto& [file, size] : reader.files()) bytes += size;
    about = reader.path().string() + ": " + std::to_string(reader.files().size()) + " files, " +
            std::to_string(reader.tensors().size()) + " tensors, " + human_bytes(bytes);
    return reader.faults();
  } catch (const checkpoint::FileError& error) {
    about = (std::filesystem::path(directory) / tag.value_or("latest")).string();
    return {error.what()};
  }
}

}  // namespace

int verify(const Words& words) {
  Arguments arguments("verify DIR [TAG] [--all] [--json]",
                      "Reads a checkpoint whole and checks everything that a load would: manifest, "
                      "sizes, checksums,\nand that each file holds exactly its tensors. Says all "
                      "that is wrong, and ends with status 1.");
  arguments.word("dir", kDirectory);
  arguments.word("tag", "default: what `latest` names", /*required=*/false);
  arguments.options().add_options()("all", "every tag of the directory, but unfinished ones")(
      "json", "print JSON");
  if (!arguments.parse(words)) return kGood;
  const std::string directory = directory_of_checkpoints(arguments.text("dir")).string();
  std::vector<std::optional<std::string>> tags = {arguments.optional_text("tag")};
  if (arguments.flag("all")) {
    tags.clear();
    for (const checkpoint::TagSummary& tag : checkpoint::summarize(directory).tags) {
      const bool has_name = tag.state == checkpoint::TagState::kComplete ||
                            tag.state == checkpoint::TagState::kDamaged;
      if (has_name) tags.emplace_back(tag.name);
    }
  } else if (!std::filesystem::is_directory(directory)) {
    throw std::invalid_argument(directory + " is not a directory");
  }
  ordered_json out = ordered_json::array();
  bool good = true;
  for (const std::optional<std::string>& tag : tags) {
    std::string about;
    const std::vector<std::string> faults = faults_of(directory, tag, about);
    good = good && faults.empty();
    if (arguments.flag("json")) {
      out.push_back({{"tag", tag ? *tag : "latest"}, {"about", about}, {"faults", faults}});
      continue;
    }
    std::cout << about << (faults.empty() ? ": all as it was saved\n" : ": damaged\n");
    for (const std::string& fault : faults) std::cout << "  " << fault << '\n';
  }
  if (arguments.flag("json")) std::cout << out.dump(2) << '\n';
  return good ? kGood : kBad;
}

}  // namespace penstock::tools
