// Reads TensorBoard event files, for tests: written from the description of the format alone, and
// sharing nothing with the writer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace penstock::testing {

struct FileEvent {
  double wall_time = 0.0;
  std::int64_t step = 0;
  std::string file_version;
  bool run_begins = false;               // field 7 is there, and says START
  std::map<std::string, float> scalars;  // by tag
};

// Throws std::runtime_error where a length, a checksum or a message is wrong, or a record is torn.
std::vector<FileEvent> read_event_file(const std::filesystem::path& file);

// The checksum of the format, bit by bit.
std::uint32_t bitwise_crc32c(const std::string& bytes);

}  // namespace penstock::testing
