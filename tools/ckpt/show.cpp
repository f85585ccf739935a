// penstock-ckpt show
#include <iostream>

#include <nlohmann/json.hpp>

#include "tools/ckpt/arguments.h"

namespace penstock::tools {

namespace {

using checkpoint::Reader;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kMostShown = 60;  // characters of a value

// "Embedding, 4 Block, Head"
std::string layers_text(const json& layers) {
  std::string text;
  for (std::size_t i = 0, next = 0; i < layers.size(); i = next) {
    while (next < layers.size() && layers[next] == layers[i]) ++next;
    text += (text.empty() ? "" : ", ") + (next - i > 1 ? std::to_string(next - i) + " " : "") +
            layers[i].get<std::string>();
  }
  return text;
}

std::string value_text(const std::string& key, const json& value) {
  if (key == "layers" && value.is_array()) {
    return std::to_string(value.size()) + ": " + layers_text(value);
  }
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const bool plain = text.size() <= kMostShown && text.find('\n') == std::string::npos;
  return plain ? text : std::to_string(text.size()) + " characters; --json shows them";
}

std::vector<std::vector<std::string>> tensor_rows(const Reader& reader) {
  std::vector<std::vector<std::string>> rows = {{"tensor", "dtype", "shape", "file"}};
  for (const auto& [name, info] : reader.tensors()) {
    std::string files;
    for (const checkpoint::StoredPiece& piece : reader.pieces(name)) {
      files += (files.empty() ? "" : ", ") + piece.file;
      if (!piece.region.is_whole(info.shape)) {
        files += " (" + piece.region.to_string(info.shape) + ")";
      }
    }
    rows.push_back({name, std::string(tensor::name_of(info.dtype)), info.shape.to_string(), files});
  }
  return rows;
}

void print(const Reader& reader) {
  std::uint64_t bytes = 0;
  for (const auto& [file, size] : reader.files()) bytes += size;
  std::cout << reader.path().string() << ": " << reader.tensors().size() << " tensors in "
            << reader.files().size() << " files, " << human_bytes(bytes) << ", saved "
            << utc(reader.saved_at()) << " UTC\n\n";
  std::vector<std::vector<std::string>> rows;
  const json engine = json::parse(reader.engine_json());
  for (const auto& [key, value] : engine.items()) rows.push_back({key, value_text(key, value)});
  std::cout << columns(rows) << '\n' << columns(tensor_rows(reader));
}

void print_json(const Reader& reader) {
  ordered_json tensors = ordered_json::array();
  for (const auto& [name, info] : reader.tensors()) {
    ordered_json pieces = ordered_json::array();
    for (const checkpoint::StoredPiece& piece : reader.pieces(name)) {
      pieces.push_back({{"file", piece.file}, {"region", piece.region.to_string(info.shape)}});
    }
    const auto dims = info.shape.dims();
    tensors.push_back({{"name", name},
                       {"dtype", tensor::name_of(info.dtype)},
                       {"shape", std::vector<std::int64_t>(dims.begin(), dims.end())},
                       {"pieces", std::move(pieces)}});
  }
  const ordered_json out = {{"tag", reader.tag()},
                            {"saved_at", reader.saved_at()},
                            {"files", reader.files()},
                            {"engine", ordered_json::parse(reader.engine_json())},
                            {"tensors", std::move(tensors)}};
  std::cout << out.dump(2) << '\n';
}

}  // namespace

int show(const Words& words) {
  Arguments arguments("show DIR [TAG] [--json]",
                      "What a checkpoint holds: the counters and settings of engine.json, then "
                      "every tensor with its\ndtype, shape and file. Data files are not read.");
  arguments.word("dir", "the directory that was given to the save");
  arguments.word("tag", "default: what `latest` names", /*required=*/false);
  arguments.options().add_options()("json", "print JSON, with values in full");
  if (!arguments.parse(words)) return kGood;
  const Reader reader = Reader::inspect(arguments.text("dir"), arguments.optional_text("tag"));
  if (arguments.flag("json")) {
    print_json(reader);
  } else {
    print(reader);
  }
  return kGood;
}

}  // namespace penstock::tools
