#include "tests/engine/event_file_reader.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>

namespace penstock::testing {

namespace {

void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string("event file: ") + what);
}

// A piece of the file that is read from its front.
class Bytes {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}

  bool empty() const { return at_ == bytes_.size(); }
  std::string take(std::uint64_t count) {
    require(count <= bytes_.size() - at_, "torn");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  std::uint64_t little_endian(int count) {
    const std::string raw = take(static_cast<std::uint64_t>(count));
    std::uint64_t value = 0;
    for (int i = count - 1; i >= 0; --i) value = value * 256 + static_cast<unsigned char>(raw[i]);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      require(shift < 64, "a varint is too long");
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
  }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

struct Field {
  std::uint64_t number = 0, wire = 0;
  std::uint64_t integer = 0;  // of wire types 0, 1 and 5
  std::string bytes;          // of wire type 2
};

void for_each_field(const std::string& message, const std::function<void(const Field&)>& visit) {
  Bytes in(message);
  while (!in.empty()) {
    const std::uint64_t key = in.varint();
    Field field{.number = key / 8, .wire = key % 8, .integer = 0, .bytes = ""};
    switch (field.wire) {
      case 0:
        field.integer = in.varint();
        break;
      case 1:
        field.integer = in.little_endian(8);
        break;
      case 2:
        field.bytes = in.take(in.varint());
        break;
      case 5:
        field.integer = in.little_endian(4);
        break;
      default:
        require(false, "unknown wire type");
    }
    visit(field);
  }
}

template <class Number, class Raw>
Number from_bits(Raw raw) {
  static_assert(sizeof(Number) == sizeof(Raw));
  Number number;
  std::memcpy(&number, &raw, sizeof number);
  return number;
}

void add_value(const std::string& message, FileEvent& event) {
  std::string tag;
  float value = 0;
  bool found = false;
  for_each_field(message, [&](const Field& field) {
    if (field.number == 1 && field.wire == 2) tag = field.bytes;
    if (field.number == 2 && field.wire == 5) {
      value = from_bits<float>(static_cast<std::uint32_t>(field.integer));
      found = true;
    }
  });
  require(found && !tag.empty(), "a value without tag or number");
  require(event.scalars.emplace(tag, value).second, "a tag is twice in an event");
}

FileEvent parse(const std::string& message) {
  FileEvent event;
  for_each_field(message, [&](const Field& field) {
    if (field.number == 1 && field.wire == 1) event.wall_time = from_bits<double>(field.integer);
    if (field.number == 2 && field.wire == 0) event.step = static_cast<std::int64_t>(field.integer);
    if (field.number == 3 && field.wire == 2) event.file_version = field.bytes;
    if (field.number == 5 && field.wire == 2) {
      for_each_field(field.bytes, [&](const Field& value) {
        if (value.number == 1 && value.wire == 2) add_value(value.bytes, event);
      });
    }
    if (field.number == 7 && field.wire == 2) {
      for_each_field(field.bytes, [&](const Field& status) {
        if (status.number == 1 && status.integer == 1) event.run_begins = true;
      });
    }
  });
  return event;
}

std::uint32_t masked(const std::string& bytes) {
  const std::uint32_t crc = bitwise_crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

}  // namespace

std::uint32_t bitwise_crc32c(const std::string& bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc % 2 == 1 ? crc / 2 ^ 0x82F63B78U : crc / 2;
  }
  return crc ^ 0xFFFFFFFFU;
}

std::vector<FileEvent> read_event_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  require(stream.good(), "cannot be opened");
  Bytes in(std::string(std::istreambuf_iterator<char>(stream), {}));
  std::vector<FileEvent> events;
  while (!in.empty()) {
    const std::string length = in.take(8);
    require(in.little_endian(4) == masked(length), "wrong checksum of a length");
    const std::string data = in.take(Bytes(length).little_endian(8));
    require(in.little_endian(4) == masked(data), "wrong checksum of data");
    events.push_back(parse(data));
  }
  return events;
}

}  // namespace penstock::testing
