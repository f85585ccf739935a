// What penstock-train keeps with each checkpoint, so that a run cannot go on with another model,
// nor unnoticed with another text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "model/zoo/gpt2.h"

namespace penstock::tools {

struct TextFacts {
  std::string file;  // as it was given
  std::uint64_t bytes = 0;
  std::string checksum;  // xxh3

  // "text.txt (8090 bytes, xxh3 0123456789abcdef)"
  std::string to_string() const;
};
TextFacts text_facts(const std::string& file, std::span<const std::uint8_t> text);

struct RunRecord {
  model::Gpt2Config model;
  TextFacts data;
};

// As the client state of a checkpoint, JSON, and back; nothing for that of another trainer. Throws
// FileError when ours cannot be read.
std::string to_client_state(const RunRecord& record);
std::optional<RunRecord> from_client_state(const std::string& text);

}  // namespace penstock::tools
