// The strict parser of safetensors headers. It works on JSON events, because a parsed JSON value
// no longer shows that a name was given twice or that a number had a fraction.
#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"

namespace penstock::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";

constexpr std::pair<std::string_view, tensor::DType> kDTypes[] = {
    {"BOOL", tensor::DType::kBool}, {"U8", tensor::DType::kU8},     {"I8", tensor::DType::kI8},
    {"I16", tensor::DType::kI16},   {"I32", tensor::DType::kI32},   {"I64", tensor::DType::kI64},
    {"F16", tensor::DType::kF16},   {"BF16", tensor::DType::kBF16}, {"F32", tensor::DType::kF32},
    {"F64", tensor::DType::kF64}};

// A tensor's fields as the file gives them.
struct Entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

class HeaderEvents : public nlohmann::json_sax<json> {
 public:
  explicit HeaderEvents(std::string_view where) : where_(where) {}

  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("true or false"); }
  bool number_integer(number_integer_t value) override { return wrong(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return wrong(text); }
  bool binary(binary_t&) override { return wrong("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      entry_.shape->push_back(value);
    } else if (place_ == Place::kOffsets) {
      entry_.offsets->push_back(value);
    } else {
      wrong(std::to_string(value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      metadata[key_] = value;
    } else if (place_ == Place::kEntry && key_ == "dtype") {
      entry_.dtype = value;
    } else {
      wrong("the string \"" + value + "\"");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kTop) {
      place_ = Place::kHeader;
    } else if (place_ == Place::kHeader && key_ == kMetadataKey) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kHeader) {
      place_ = Place::kEntry;
      entry_ = Entry{key_, {}, {}, {}};
    } else {
      wrong("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    std::set<std::string>& seen = place_ == Place::kHeader ? names_ : fields_;
    if (!seen.insert(name).second) fail("\"" + name + "\" is given twice");
    if (place_ == Place::kEntry && name != "dtype" && name != "shape" && name != "data_offsets") {
      fail("unknown field \"" + name + "\"; expected dtype, shape and data_offsets");
    }
    key_ = name;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kEntry) entries.push_back(std::move(entry_));
    place_ = place_ == Place::kHeader ? Place::kTop : Place::kHeader;
    fields_.clear();
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kEntry && key_ == "shape") {
      place_ = Place::kShape;
      entry_.shape.emplace();
    } else if (place_ == Place::kEntry && key_ == "data_offsets") {
      place_ = Place::kOffsets;
      entry_.offsets.emplace();
    } else {
      wrong("an array");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kEntry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const std::string what = error.what();  // "[json.exception…] parse error at …: reason"
    const std::size_t reason = what.find(": ");
    throw FileError("[" + std::string(where_) + "] the header is not JSON in UTF-8: byte " +
                    std::to_string(position) + ": " +
                    (reason == std::string::npos ? what : what.substr(reason + 2)));
  }

  std::vector<Entry> entries;
  Metadata metadata;

 private:
  enum class Place { kTop, kHeader, kMetadata, kEntry, kShape, kOffsets };

  [[noreturn]] void fail(const std::string& what) const {
    std::string subject = "the header";
    if (place_ == Place::kMetadata) subject = kMetadataKey;
    if (place_ >= Place::kEntry) subject = "tensor \"" + entry_.name + "\"";
    throw FileError("[" + std::string(where_) + "] " + subject + ": " + what);
  }

  // A value of a kind that does not belong where it is.
  [[noreturn]] bool wrong(const std::string& found) const {
    switch (place_) {
      case Place::kTop:
        fail("found " + found + "; expected a JSON object");
      case Place::kHeader:
        fail("\"" + key_ + "\" is " + found + "; expected an object");
      case Place::kMetadata:
        fail("\"" + key_ + "\" is " + found + "; expected a string");
      case Place::kEntry:
        fail(key_ + " is " + found + "; expected " +
             (key_ == "dtype" ? "a string" : "an array of whole numbers"));
      default:
        fail(key_ + " holds " + found + "; expected whole numbers from 0 to 2^64 - 1");
    }
  }

  std::string_view where_;
  Place place_ = Place::kTop;
  std::string key_;
  Entry entry_;
  std::set<std::string> names_;
  std::set<std::string> fields_;
};

// shape × element size, or nothing when 64 bits do not hold it.
std::optional<std::uint64_t> checked_bytes(const std::vector<std::uint64_t>& shape,
                                           std::size_t element_size) {
  std::uint64_t bytes = element_size;
  for (const std::uint64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string list(const std::vector<std::uint64_t>& values) {
  std::string text = "[";
  for (const std::uint64_t value : values) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  }
  return text + "]";
}

StoredTensor check_entry(std::string_view where, const Entry& entry, std::uint64_t data_bytes) {
  const auto fail = [&](const std::string& what) {
    throw FileError("[" + std::string(where) + "] tensor \"" + entry.name + "\": " + what);
  };
  if (!entry.dtype) fail("has no dtype");
  if (!entry.shape) fail("has no shape");
  if (!entry.offsets) fail("has no data_offsets");
  const std::optional<tensor::DType> dtype = dtype_from_safetensors(*entry.dtype);
  if (!dtype) {
    fail("dtype \"" + *entry.dtype +
         "\"; expected BOOL, U8, I8, I16, I32, I64, F16, BF16, F32 or F64");
  }
  if (entry.offsets->size() != 2) {
    fail("data_offsets has " + std::to_string(entry.offsets->size()) +
         " numbers; expected 2, begin and end");
  }
  const std::uint64_t begin = (*entry.offsets)[0];
  const std::uint64_t end = (*entry.offsets)[1];
  if (begin > end) fail("data_offsets " + list(*entry.offsets) + ": begin is after end");
  if (end > data_bytes) {
    fail("data_offsets " + list(*entry.offsets) + " reach past the data, which has " +
         std::to_string(data_bytes) + " bytes");
  }
  const std::optional<std::uint64_t> bytes = checked_bytes(*entry.shape, tensor::size_of(*dtype));
  if (!bytes) fail("the size of shape " + list(*entry.shape) + " overflows 64 bits");
  if (*bytes != end - begin) {
    fail("data_offsets " + list(*entry.offsets) + " hold " + std::to_string(end - begin) +
         " bytes; expected " + std::to_string(*bytes) + " for " + *entry.dtype + " " +
         list(*entry.shape));
  }
  if (entry.shape->size() > static_cast<std::size_t>(tensor::Shape::kMaxRank)) {
    fail("shape " + list(*entry.shape) + " has " + std::to_string(entry.shape->size()) +
         " dimensions; Penstock holds up to " + std::to_string(tensor::Shape::kMaxRank));
  }
  std::vector<std::int64_t> dims;
  for (const std::uint64_t dim : *entry.shape) {
    if (dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail("shape " + list(*entry.shape) + " has a dimension that overflows 63 bits");
    }
    dims.push_back(static_cast<std::int64_t>(dim));
  }
  return {entry.name, *dtype, tensor::Shape(dims), begin, end};
}

// The tensors must cover the data exactly once.
void check_cover(std::string_view where, const std::vector<StoredTensor>& tensors,
                 std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin != covered) {
      throw FileError("[" + std::string(where) + "] tensor \"" + tensor.name +
                      "\": its data begin at " + std::to_string(tensor.begin) + "; expected at " +
                      std::to_string(covered) + ", where the " +
                      (covered == 0 ? "data begin" : "data of the tensor before it end"));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    const std::string last = tensors.empty()
                                 ? "there are no tensors"
                                 : "tensor \"" + tensors.back().name + "\", the last, ends at " +
                                       std::to_string(covered);
    throw FileError("[" + std::string(where) + "] " + last + ", but the data have " +
                    std::to_string(data_bytes) + " bytes");
  }
}

}  // namespace

std::string_view safetensors_name(tensor::DType dtype) {
  for (const auto& [name, value] : kDTypes) {
    if (value == dtype) return name;
  }
  throw tensor::InternalError("[safetensors] a dtype without a name");
}

std::optional<tensor::DType> dtype_from_safetensors(std::string_view name) {
  for (const auto& [known, value] : kDTypes) {
    if (known == name) return value;
  }
  return std::nullopt;
}

SafetensorsHeader parse_safetensors_header(std::string_view where, std::string_view text,
                                           std::uint64_t data_bytes) {
  if (text.empty() || text.front() != '{') {
    throw FileError("[" + std::string(where) + "] the header is not a JSON object: it does not " +
                    "begin with '{'");
  }
  // The parser takes a zero byte for the end of the text.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw FileError("[" + std::string(where) + "] the header is not JSON: byte " +
                    std::to_string(zero) + " is zero");
  }
  HeaderEvents events(where);
  json::sax_parse(text.begin(), text.end(), &events);
  SafetensorsHeader header;
  header.metadata = std::move(events.metadata);
  for (const Entry& entry : events.entries) {
    header.tensors.push_back(check_entry(where, entry, data_bytes));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  check_cover(where, header.tensors, data_bytes);
  return header;
}

}  // namespace penstock::checkpoint
