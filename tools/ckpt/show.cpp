// penstock-ckpt show
#include <iostream>
#include <map>

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

// Each file once, with the parts of the tensor that are in it: "a (axis 0 [0, 2), axis 0 [4, 6))".
std::string files_text(const std::vector<checkpoint::StoredPiece>& pieces,
                       const tensor::Shape& shape) {
  std::map<std::string, std::string> parts;
  for (const checkpoint::StoredPiece& piece : pieces) {
    std::string& text = parts[piece.file];
    if (piece.region.is_whole(shape)) continue;
    text += (text.empty() ? "" : ", ") + piece.region.to_string(shape);
  }
  std::string files;
  for (const auto& [file, text] : parts) {
    files += (files.empty() ? "" : ", ") + file + (text.empty() ? "" : " (" + text + ")");
  }
  return files;
}

std::vector<std::vector<std::string>> tensor_rows(const Reader& reader) {
  std::vector<std::vector<std::string>> rows = {{"tensor", "dtype", "shape", "file"}};
  for (const auto& [name, info] : reader.tensors()) {
    rows.push_back({name, std::string(tensor::name_of(info.dtype)), info.shape.to_string(),
                    files_text(reader.pieces(name), info.shape)});
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
  arguments.word("dir", kDirectory);
  arguments.word("tag", "default: what `latest` names", /*required=*/false);
  arguments.options().add_options()("json", "print JSON, with values in full");
  if (!arguments.parse(words)) return kGood;
  const Reader reader = Reader::inspect(directory_of_checkpoints(arguments.text("dir")),
                                        arguments.optional_text("tag"));
  if (arguments.flag("json")) {
    print_json(reader);
  } else {
    print(reader);
  }
  return kGood;
}

}  // namespace penstock::tools
