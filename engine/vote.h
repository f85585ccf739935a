// The vote that begins every collective call: all ranks agree to go on, or all throw the same
// error before anything changed.
#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <string_view>

#include "comm/world.h"

namespace penstock::engine {

enum class CallKind : std::int64_t {
  kConstruct,
  kTrain,
  kEval,
  kStep,
  kEvalStep,
  kSave,
  kLoad,
  kLoadModule,
  kSaveModule,
  kSetBatchSize,
  kReport,
  kFinishSave,
  kClose
};

// "train_batch": the call as a trainer writes it.
std::string_view name_of(CallKind kind);

// What one rank brings to the vote.
struct Ballot {
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

  CallKind kind = CallKind::kTrain;
  std::int64_t number = 0;         // of this call; equal on all ranks
  std::uint64_t hash = 0;          // of config and schedule; equal on all ranks
  std::int64_t wanted = 0;         // micro batches of the call; equal on all ranks
  std::int64_t options = 0;        // of the call, as a number; equal on all ranks
  std::int64_t available = kNone;  // whole micro batches fetched; kNone: this rank loads none
  std::int64_t position = kNone;   // in the order of samples; equal on all ranks that load
  std::string data_shortage;       // says where the data ended, when available < wanted
  bool save_ready = true;          // no save under way has to wait for this rank
  std::string error;               // why this rank cannot go on; empty: it can
};

// What an exception says, for Ballot::error. Never empty: an error without a text is one too.
std::string error_text(const std::exception& error);

// What all ranks agree on.
struct Agreement {
  std::int64_t position = Ballot::kNone;  // of the ranks that load; kNone: there are none
  bool save_ready = true;                 // of every rank
};

// Collective over the world: one MIN all-reduce of int64 fields, and only on failure an exchange of
// texts. Throws EndOfData when data are all that is missing, else CallRefused.
Agreement vote(comm::World& world, const Ballot& ballot);

}  // namespace penstock::engine
