#include "engine/vote.h"

#include <array>
#include <string_view>

#include "engine/errors.h"

namespace penstock::engine {

namespace {

// Places in the array that is reduced by MIN. A value is equal on all ranks when the minimum of x
// equals the complement of the minimum of ~x, which is the maximum of x.
enum Field : std::size_t {
  kKind,
  kNumber,
  kHash,
  kWanted,
  kOptions,
  kPosition,
  kNotKind,
  kNotNumber,
  kNotHash,
  kNotWanted,
  kNotOptions,
  kNotPosition,
  kAvailable,
  kFine,
  kSaveReady,
  kNumFields
};
constexpr std::size_t kComplement = kNotKind - kKind;

constexpr std::array<std::string_view, kComplement> kFieldNames = {"the kind of call",
                                                                   "the number of calls made",
                                                                   "the configuration or schedule",
                                                                   "the number of micro batches",
                                                                   "the options of the call",
                                                                   "the position in the data"};

std::array<std::int64_t, kNumFields> fields_of(const Ballot& ballot) {
  std::array<std::int64_t, kNumFields> fields{};
  fields[kKind] = static_cast<std::int64_t>(ballot.kind);
  fields[kNumber] = ballot.number;
  fields[kHash] = static_cast<std::int64_t>(ballot.hash);
  fields[kWanted] = ballot.wanted;
  fields[kOptions] = ballot.options;
  fields[kPosition] = ballot.position;
  for (std::size_t i = 0; i < kComplement; ++i) fields[i + kComplement] = ~fields[i];
  // A rank that loads nothing has no say in the position.
  if (ballot.position == Ballot::kNone) fields[kNotPosition] = Ballot::kNone;
  fields[kAvailable] = ballot.available;
  fields[kFine] = ballot.error.empty() ? 1 : 0;
  fields[kSaveReady] = ballot.save_ready ? 1 : 0;
  return fields;
}

}  // namespace

std::string_view name_of(CallKind kind) {
  switch (kind) {
    case CallKind::kConstruct:
      return "Engine";
    case CallKind::kTrain:
      return "train_batch";
    case CallKind::kEval:
      return "eval_batch";
    case CallKind::kStep:
      return "step";
    case CallKind::kEvalStep:
      return "eval_step";
    case CallKind::kSave:
      return "save_checkpoint";
    case CallKind::kLoad:
      return "load_checkpoint";
    case CallKind::kLoadModule:
      return "load_module";
    case CallKind::kSaveModule:
      return "save_module";
    case CallKind::kSetBatchSize:
      return "set_train_batch_size";
    case CallKind::kReport:
      return "rank_reports";
    case CallKind::kFinishSave:
      return "finish_save";
    case CallKind::kClose:
      return "close";
  }
  return "call";
}

std::string error_text(const std::exception& error) {
  const std::string text = error.what();
  return text.empty() ? "an error without a text" : text;
}

Agreement vote(comm::World& world, const Ballot& ballot) {
  std::array<std::int64_t, kNumFields> result = fields_of(ballot);
  world.all().all_reduce_wait(result, comm::ReduceOp::kMin);

  std::string differs;
  for (std::size_t i = 0; i < kComplement; ++i) {
    if (i == kPosition && result[i] == Ballot::kNone) continue;
    if (result[i] != ~result[i + kComplement]) {
      differs += (differs.empty() ? "" : ", ") + std::string(kFieldNames[i]);
    }
  }
  const bool short_of_data = result[kAvailable] < ballot.wanted;
  const bool fine = result[kFine] == 1;
  if (fine && differs.empty() && !short_of_data) {
    return {.position = result[kPosition], .save_ready = result[kSaveReady] == 1};
  }

  // Every rank comes here or none does, since all saw the same minimum.
  const std::string mine = !ballot.error.empty()              ? ballot.error
                           : ballot.available < ballot.wanted ? ballot.data_shortage
                                                              : "";
  const std::string texts = comm::by_rank(world.all().all_gather_text(mine));
  const std::string where = "[" + std::string(name_of(ballot.kind)) + "] ";
  if (!fine) throw CallRefused(where + texts);
  if (!differs.empty()) {
    throw CallRefused(where + "the ranks do not agree on " + differs +
                      "; expected all to make the same calls with the same configuration");
  }
  throw EndOfData(where + "the data ended: " + std::to_string(result[kAvailable]) +
                  " micro batches available, " + std::to_string(ballot.wanted) + " needed (" +
                  texts + "); nothing changed: give a new source with set_data()");
}

}  // namespace penstock::engine
