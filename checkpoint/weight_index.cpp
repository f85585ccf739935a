#include "checkpoint/weight_index.h"

#include <map>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "checkpoint/error.h"

namespace penstock::checkpoint {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// File names to the tensors that the index promises in them.
using Promised = std::map<std::string, std::set<std::string>>;

[[noreturn]] void fail(const fs::path& where, const std::string& what) {
  throw FileError("[" + where.string() + "] " + what);
}

Promised read_index(const fs::path& index, FileSystem& file_system) {
  constexpr std::uint64_t kMost = 100'000'000;
  json parsed;
  try {
    parsed = json::parse(read_text(file_system, index, kMost));
  } catch (const json::parse_error& error) {
    fail(index, std::string("is not JSON: ") + error.what());
  }
  const auto map = parsed.is_object() ? parsed.find("weight_map") : parsed.end();
  if (!parsed.is_object() || map == parsed.end() || !map->is_object() || map->empty()) {
    fail(index, "expected an object \"weight_map\" from tensors to files");
  }
  Promised promised;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || fs::path(name).filename() != name || name == "." || name == "..") {
      fail(index, "tensor \"" + tensor + "\": expected the name of a file beside the index, got " +
                      file.dump());
    }
    promised[name].insert(tensor);
  }
  return promised;
}

// The header of a file and the index say the same.
void check_file(const fs::path& index, const SafetensorsFile& file,
                const std::set<std::string>& promised) {
  for (const std::string& tensor : promised) {
    if (file.find(tensor) != nullptr) continue;
    fail(file.path(), "holds no tensor \"" + tensor + "\", which " + index.filename().string() +
                          " promises there");
  }
  for (const StoredTensor& stored : file.tensors()) {
    if (promised.contains(stored.name)) continue;
    fail(file.path(), "holds tensor \"" + stored.name + "\", which " + index.filename().string() +
                          " does not name there");
  }
}

}  // namespace

std::vector<SafetensorsFile> open_indexed_files(const fs::path& index, FileSystem& file_system) {
  std::vector<SafetensorsFile> files;
  for (const auto& [name, tensors] : read_index(index, file_system)) {
    const fs::path path = index.parent_path() / name;
    if (file_system.kind(path) != FileKind::kFile) {
      fail(path, "does not exist, but " + index.filename().string() + " names it");
    }
    files.push_back(SafetensorsFile::open(path, file_system));
    check_file(index, files.back(), tensors);
  }
  return files;
}

}  // namespace penstock::checkpoint
