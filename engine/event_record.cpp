#include "engine/event_record.h"

#include <array>
#include <bit>

namespace penstock::engine {

namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  constexpr std::uint32_t kReflectedPolynomial = 0x82F63B78;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReflectedPolynomial : 0);
    }
    table[byte] = crc;
  }
  return table;
}

constexpr auto kCrcTable = make_crc_table();

template <class Unsigned>
void add_little_endian(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  }
}

// So that the CRC of data that hold CRCs stays a good check.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

// --- protobuf: a field is a key (number and wire type) and a value
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void add_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

void add_key(std::string& out, unsigned field, Wire wire) {
  add_varint(out, field << 3 | static_cast<unsigned>(wire));
}

void add_int(std::string& out, unsigned field, std::int64_t value) {
  add_key(out, field, Wire::kVarint);
  add_varint(out, static_cast<std::uint64_t>(value));
}

void add_double(std::string& out, unsigned field, double value) {
  add_key(out, field, Wire::kFixed64);
  add_little_endian(out, std::bit_cast<std::uint64_t>(value));
}

void add_float(std::string& out, unsigned field, float value) {
  add_key(out, field, Wire::kFixed32);
  add_little_endian(out, std::bit_cast<std::uint32_t>(value));
}

// A string, or a message within this one.
void add_bytes(std::string& out, unsigned field, std::string_view bytes) {
  add_key(out, field, Wire::kBytes);
  add_varint(out, bytes.size());
  out += bytes;
}

// --- field numbers of event.proto and summary.proto
enum EventField : std::uint8_t {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5,
  kSessionLog = 7
};
constexpr unsigned kSessionStatus = 1;
constexpr std::int64_t kSessionStart = 1;
constexpr unsigned kSummaryValue = 1;
enum ValueField : std::uint8_t { kTag = 1, kSimpleValue = 2 };

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc = kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
  }
  return ~crc;
}

std::string event_record(std::string_view event) {
  std::string record;
  add_little_endian(record, static_cast<std::uint64_t>(event.size()));
  add_little_endian(record, masked_crc(record));
  record += event;
  add_little_endian(record, masked_crc(event));
  return record;
}

std::string version_event(double wall_time) {
  std::string event;
  add_double(event, kWallTime, wall_time);
  add_bytes(event, kFileVersion, "brain.Event:2");
  return event;
}

std::string start_event(double wall_time, std::int64_t step) {
  std::string session;
  add_int(session, kSessionStatus, kSessionStart);
  std::string event;
  add_double(event, kWallTime, wall_time);
  add_int(event, kStep, step);
  add_bytes(event, kSessionLog, session);
  return event;
}

std::string scalars_event(double wall_time, std::int64_t step, std::span<const Metric> metrics) {
  std::string summary;
  for (const Metric& metric : metrics) {
    std::string value;
    add_bytes(value, kTag, metric.tag);
    add_float(value, kSimpleValue, static_cast<float>(metric.value));
    add_bytes(summary, kSummaryValue, value);
  }
  std::string event;
  add_double(event, kWallTime, wall_time);
  add_int(event, kStep, step);
  add_bytes(event, kSummary, summary);
  return event;
}

}  // namespace penstock::engine
