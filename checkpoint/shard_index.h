// model.safetensors.index.json: which of several files holds which weight, as Hugging Face has it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace penstock::checkpoint {

inline constexpr std::string_view kSingleWeightsFile = "model.safetensors";
inline constexpr std::string_view kShardIndexFile = "model.safetensors.index.json";

// "model-00002-of-00004.safetensors" for index 1 of 4; "model.safetensors" for the only one.
std::string shard_file(int index, int count);
// Whether a file has a name that weights are saved under.
bool is_weights_file(std::string_view name);

using ShardIndex = std::map<std::string, std::string, std::less<>>;  // file by tensor

std::string to_text(const ShardIndex& index, std::int64_t total_bytes);
// Throws FileError, with `where` as the file's name, unless it is an index of plain file names that
// gives each tensor once.
ShardIndex parse_shard_index(std::string_view where, std::string_view text);

}  // namespace penstock::checkpoint
