// The manifest as text. Beginning and end are fixed bytes, so that the checksum inside covers
// exactly what is between them.
#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "checkpoint/error.h"
#include "checkpoint/hash.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "tensor/error.h"

namespace penstock::checkpoint {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kHead = "{\"checksum\":\"";
constexpr std::string_view kMiddle = "\",\"manifest\":";
constexpr std::string_view kTail = "}\n";
constexpr std::size_t kHashDigits = 16;
constexpr std::size_t kBodyBegin = kHead.size() + kHashDigits + kMiddle.size();

ordered_json piece_json(const ManifestTensor& tensor, const ManifestPiece& piece) {
  const Region& region = piece.region;
  ordered_json value = {{"file", piece.file}};
  if (region.axis >= 0) value["slice"] = {region.axis, region.axis_begin, region.axis_end};
  if (region.numel() != region.slice_shape(tensor.shape).numel()) {
    value["elements"] = {region.begin, region.end};
  }
  value["xxh3"] = to_hex(piece.checksum);
  return value;
}

ordered_json tensor_json(const std::string& name, const ManifestTensor& tensor) {
  ordered_json pieces = ordered_json::array();
  for (const ManifestPiece& piece : tensor.pieces) pieces.push_back(piece_json(tensor, piece));
  return {
      {"name", name},
      {"dtype", safetensors_name(tensor.dtype)},
      {"shape", std::vector<std::int64_t>(tensor.shape.dims().begin(), tensor.shape.dims().end())},
      {"pieces", pieces}};
}

// One row per line, so that people can read and compare manifests.
void append_rows(std::string& body, const std::vector<std::string>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) body += (i == 0 ? "\n" : ",\n") + rows[i];
}

// Reads a value of the wanted type or says what is wrong.
class Fields {
 public:
  Fields(std::string_view where, std::string subject, const json& object)
      : where_(where), subject_(std::move(subject)), object_(object) {
    if (!object.is_object()) fail("is not an object");
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw FileError("[" + std::string(where_) + "] " + subject_ + " " + what);
  }
  bool has(const char* key) const { return object_.contains(key); }

  std::string text(const char* key) const {
    if (!value(key).is_string()) fail(std::string(key) + " is not a string");
    return value(key).get<std::string>();
  }
  std::int64_t number(const char* key) const { return number(key, value(key)); }
  std::uint64_t hash(const char* key) const {
    std::uint64_t result = 0;
    if (!from_hex(text(key), result)) fail(std::string(key) + " is not 16 hexadecimal digits");
    return result;
  }
  const json& array(const char* key) const {
    if (!value(key).is_array()) fail(std::string(key) + " is not an array");
    return value(key);
  }
  std::vector<std::int64_t> numbers(const char* key) const {
    std::vector<std::int64_t> result;
    for (const json& item : array(key)) result.push_back(number(key, item));
    return result;
  }
  // Throws for keys outside of those given.
  void only(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, unused] : object_.items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        fail("has a field \"" + key + "\"");
    }
  }

 private:
  const json& value(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) fail(std::string("has no ") + key);
    return *found;
  }
  std::int64_t number(const char* key, const json& item) const {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() > kMost) {
      fail(std::string(key) + " is or holds " + item.dump() + ", not a whole number");
    }
    return item.get<std::int64_t>();
  }

  std::string_view where_;
  std::string subject_;
  const json& object_;
};

ManifestPiece parse_piece(std::string_view where, const std::string& name,
                          const tensor::Shape& shape, const json& value) {
  const Fields fields(where, "a piece of tensor \"" + name + "\"", value);
  fields.only({"file", "slice", "elements", "xxh3"});
  ManifestPiece piece{fields.text("file"), Region::whole(shape), fields.hash("xxh3")};
  if (fields.has("slice")) {
    const std::vector<std::int64_t> slice = fields.numbers("slice");
    if (slice.size() != 3 || slice[0] >= shape.rank()) fields.fail("has no [axis, begin, end]");
    piece.region = Region::slice(shape, static_cast<int>(slice[0]), slice[1], slice[2]);
  }
  if (fields.has("elements")) {
    const std::vector<std::int64_t> elements = fields.numbers("elements");
    if (elements.size() != 2) fields.fail("has no elements [begin, end]");
    piece.region = piece.region.elements(elements[0], elements[1]);
  }
  return piece;
}

void parse_tensor(std::string_view where, const json& value, Manifest& manifest) {
  const std::string name = Fields(where, "a tensor", value).text("name");
  const Fields fields(where, "tensor \"" + name + "\"", value);
  fields.only({"name", "dtype", "shape", "pieces"});
  ManifestTensor tensor;
  const std::optional<tensor::DType> dtype = dtype_from_safetensors(fields.text("dtype"));
  if (!dtype) fields.fail("has the dtype \"" + fields.text("dtype") + "\"");
  tensor.dtype = *dtype;
  tensor.shape = tensor::Shape(fields.numbers("shape"));
  for (const json& piece : fields.array("pieces")) {
    tensor.pieces.push_back(parse_piece(where, name, tensor.shape, piece));
  }
  if (!manifest.tensors.emplace(name, std::move(tensor)).second) fields.fail("is listed twice");
}

Manifest parse_body(std::string_view where, const json& body) {
  const Fields fields(where, "the manifest", body);
  if (const std::int64_t version = fields.number("version"); version != kFormatVersion) {
    fields.fail("has version " + std::to_string(version) + "; expected " +
                std::to_string(kFormatVersion) + "; use the Penstock that wrote it");
  }
  fields.only({"version", "saved_at", "files", "tensors"});
  Manifest manifest;
  manifest.saved_at = fields.number("saved_at");
  for (const json& value : fields.array("files")) {
    const Fields file(where, "a file", value);
    file.only({"file", "bytes", "xxh3"});
    const FileFacts facts{static_cast<std::uint64_t>(file.number("bytes")), file.hash("xxh3")};
    if (!manifest.files.emplace(file.text("file"), facts).second) {
      fields.fail("lists the file " + file.text("file") + " twice");
    }
  }
  for (const json& value : fields.array("tensors")) parse_tensor(where, value, manifest);
  return manifest;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  std::vector<std::string> files;
  for (const auto& [file, facts] : manifest.files) {
    const ordered_json row = {
        {"file", file}, {"bytes", facts.bytes}, {"xxh3", to_hex(facts.checksum)}};
    files.push_back(row.dump());
  }
  std::vector<std::string> tensors;
  for (const auto& [name, tensor] : manifest.tensors) {
    tensors.push_back(tensor_json(name, tensor).dump());
  }
  std::string body = "{\"version\":" + std::to_string(kFormatVersion) +
                     ",\"saved_at\":" + std::to_string(manifest.saved_at) + ",\n\"files\":[";
  append_rows(body, files);
  body += "],\n\"tensors\":[";
  append_rows(body, tensors);
  body += "]}";
  return std::string(kHead) + to_hex(checksum_of(body)) + std::string(kMiddle) + body +
         std::string(kTail);
}

Manifest parse_manifest(std::string_view where, std::string_view text) {
  if (text.size() < kBodyBegin + kTail.size() || !text.starts_with(kHead) ||
      text.substr(kHead.size() + kHashDigits, kMiddle.size()) != kMiddle ||
      !text.ends_with(kTail)) {
    throw FileError("[" + std::string(where) + "] is not a manifest, or is cut off");
  }
  const std::string_view stated = text.substr(kHead.size(), kHashDigits);
  const std::string_view body = text.substr(kBodyBegin, text.size() - kBodyBegin - kTail.size());
  const std::string actual = to_hex(checksum_of(body));
  if (stated != actual) {
    throw FileError("[" + std::string(where) + "] its checksum is " + actual + "; expected " +
                    std::string(stated) + "; the file was changed");
  }
  try {
    return parse_body(where, json::parse(body));
  } catch (const json::exception& error) {
    throw FileError("[" + std::string(where) + "] is not JSON: " + error.what());
  } catch (const tensor::InvalidArgument& error) {
    throw FileError("[" + std::string(where) +
                    "] holds an impossible shape or region: " + error.what());
  }
}

}  // namespace penstock::checkpoint
