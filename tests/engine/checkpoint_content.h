// What a checkpoint holds, and checkpoints that lack some of it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace penstock::testing {

// Every tensor, weights and optimizer state, and engine.json as text with sorted keys.
struct CheckpointContent {
  std::map<std::string, std::vector<std::byte>> tensors;
  std::string engine_json;
  bool operator==(const CheckpointContent&) const = default;
};

// Of a tag, or of what `latest` names.
CheckpointContent content_of(const std::filesystem::path& folder, const std::string& tag = "");

// Writes the latest checkpoint again, valid in itself, without one tensor or with another
// engine.json.
void rewrite_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                        const std::string& dropped, const std::string& engine_json);

}  // namespace penstock::testing
