#include "engine/replica_check.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/hash.h"
#include "tensor/transfer.h"

namespace penstock::engine {

namespace {

using nlohmann::json;

using Hashes = std::map<std::string, std::uint64_t>;  // by part

// Differs whenever a single bit does.
std::uint64_t hash_of(const tensor::Tensor& weight) {
  const tensor::Tensor values =
      tensor::to_host(tensor::Context(tensor::make_cpu_allocator()), weight);
  const std::span<const std::byte> bytes(values.raw(), values.nbytes());
  std::uint64_t hash = kEmptyHash;
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof(word), bytes.size() - i));
    hash = hash_with(hash, word);
  }
  return hash;
}

// The weight, and which part of it: "3.mlp.c_fc.weight, [32, 64) of dimension 1".
std::string part_of(const model::StageParameter& parameter) {
  std::string text = parameter.name;
  for (const model::Shard::Range& range : parameter.shard.ranges) {
    text += ", [" + std::to_string(range.whole) + ", " + std::to_string(range.whole + range.count) +
            ") of dimension " + std::to_string(parameter.shard.axis);
  }
  return text;
}

}  // namespace

void check_replicas(comm::World& world, Engine& engine) {
  Hashes own;
  for (const auto& stage : engine.stages()) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      own[part_of(parameter)] = hash_of(parameter.parameter->value);
    }
  }
  const std::vector<std::string> texts = world.all().all_gather_text(json(own).dump());
  struct First {
    std::uint64_t hash;
    std::size_t rank;
  };
  std::map<std::string, First> first;
  std::map<std::string, std::size_t> differing;  // the first rank that does
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    for (const auto& [part, hash] : json::parse(texts[rank]).get<Hashes>()) {
      const auto found = first.try_emplace(part, First{hash, rank}).first;
      if (found->second.hash != hash) differing.try_emplace(part, rank);
    }
  }
  if (differing.empty()) return;
  const auto& [part, rank] = *differing.begin();
  throw ReplicasDiffer("[check_replicas] ranks " + std::to_string(first.at(part).rank) + " and " +
                       std::to_string(rank) + " hold different bits of " + part + " after step " +
                       std::to_string(engine.global_steps()) +
                       "; expected the same on every rank that has it; look for a handler, a layer "
                       "or an own write into weights that does something else on some ranks");
}

}  // namespace penstock::engine
