// What penstock-train keeps with each checkpoint, so that a run cannot go on with another model,
// nor unnoticed with other data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/train/model_choice.h"

namespace penstock::tools {

struct DataFacts {
  std::string files;  // as they were given
  std::uint64_t bytes = 0;
  std::string checksum;  // xxh3; of a file above 64 MiB, its first and its last MiB count

  // "text.txt (8090 bytes, xxh3 0123456789abcdef)"
  std::string to_string() const;
};
// Throws InvalidArgument for a file that cannot be read.
DataFacts data_facts(const std::vector<std::string>& files);

struct RunRecord {
  ModelConfig model;
  DataFacts data;
};

// JSON, for people to read too.
std::string model_text(const ModelConfig& config);
// Whether a run of one may go on with the other: all but dropout is equal.
bool same_model(const ModelConfig& a, const ModelConfig& b);

// As the client state of a checkpoint, JSON, and back; nothing for that of another trainer. Throws
// FileError when ours cannot be read.
std::string to_client_state(const RunRecord& record);
std::optional<RunRecord> from_client_state(const std::string& text);

}  // namespace penstock::tools
