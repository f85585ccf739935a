// Engine::rank_reports: every rank's account of the run, and the plan that it is held against.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/engine_state.h"
#include "engine/report.h"
#include "engine/text_table.h"

namespace penstock::engine {

namespace {

using tensor::Tensor;

// Shapes and dtypes as numbers: of inputs and labels how many, and of each its dtype, its rank and
// its dimensions.
using ShapeNumbers = std::vector<std::int64_t>;

void add_shapes(const std::vector<Tensor>& tensors, ShapeNumbers& numbers) {
  numbers.push_back(std::ssize(tensors));
  for (const Tensor& tensor : tensors) {
    numbers.push_back(static_cast<std::int64_t>(tensor.dtype()));
    numbers.push_back(tensor.shape().rank());
    for (const std::int64_t size : tensor.shape().dims()) numbers.push_back(size);
  }
}

// Tensors without elements of the shapes at `next`, which moves past them.
std::vector<Tensor> take_shapes(const std::shared_ptr<tensor::Allocator>& meta,
                                ShapeNumbers::const_iterator& next) {
  std::vector<Tensor> tensors(static_cast<std::size_t>(*next++));
  for (Tensor& tensor : tensors) {
    const auto dtype = static_cast<tensor::DType>(*next++);
    const auto rank = static_cast<std::size_t>(*next++);
    tensor = Tensor::empty(meta, tensor::Shape(std::span(next, rank)), dtype);
    next += static_cast<std::ptrdiff_t>(rank);
  }
  return tensors;
}

// What ranks tell each other; stages and places are known.
enum Field : std::size_t {
  kTrainCalls,
  kEvalCalls,
  kTime,
  kIdle,
  kMessages,
  kMessageBytes,
  kReducedBytes,
  kPeak,
  kBuffers,         // or kNone
  kPlanned,         // or kNone
  kPlannedBuffers,  // or kNone
  kAllocated,       // on the device; or kNone
  kCached,
  kDevicePeak,
  kGraphBytes,  // or kNone
  kCaptured,
  kReplayed,
  kPlain,
  kNumFields
};
constexpr std::int64_t kNone = -1;

std::optional<std::int64_t> known(std::int64_t bytes) {
  return bytes == kNone ? std::nullopt : std::optional(bytes);
}

RankReport report_of(std::span<const std::int64_t> fields) {
  const auto seconds = [&](Field field) { return static_cast<double>(fields[field]) * 1e-9; };
  RankReport report;
  report.train_calls = fields[kTrainCalls];
  report.eval_calls = fields[kEvalCalls];
  report.seconds = seconds(kTime);
  report.idle_seconds = seconds(kIdle);
  report.messages = fields[kMessages];
  report.message_bytes = fields[kMessageBytes];
  report.reduced_bytes = fields[kReducedBytes];
  report.peak_bytes = fields[kPeak];
  report.buffer_bytes = known(fields[kBuffers]);
  report.planned_bytes = known(fields[kPlanned]);
  report.planned_buffer_bytes = known(fields[kPlannedBuffers]);
  if (fields[kAllocated] != kNone) {
    report.device = {
        .allocated = fields[kAllocated], .cached = fields[kCached], .peak = fields[kDevicePeak]};
  }
  if (fields[kGraphBytes] != kNone) {
    report.graphs = {.bytes = fields[kGraphBytes],
                     .captured = fields[kCaptured],
                     .replayed = fields[kReplayed],
                     .plain = fields[kPlain]};
  }
  return report;
}

std::string stages_text(const std::vector<int>& stages) {
  std::string text;
  for (const int stage : stages) text += (text.empty() ? "" : ",") + std::to_string(stage);
  return text;
}

std::string bytes_text(const std::optional<std::int64_t>& bytes) {
  return bytes ? grouped(*bytes) : "-";
}

}  // namespace

void Engine::State::note_largest(std::span<const model::MicroBatch> loaded) {
  for (const model::MicroBatch& micro_batch : loaded) {
    std::size_t bytes = 0;
    for (const Tensor& tensor : micro_batch.inputs) bytes += tensor.nbytes();
    for (const Tensor& tensor : micro_batch.labels) bytes += tensor.nbytes();
    if (bytes <= largest_bytes) continue;
    largest_bytes = bytes;
    largest_shapes.clear();
    add_shapes(micro_batch.inputs, largest_shapes);
    add_shapes(micro_batch.labels, largest_shapes);
  }
}

std::optional<RankMemory> Engine::State::plan_for_largest() {
  // The rank that loads for the first stage has seen inputs and labels, and tells the others of its
  // replica.
  const std::string_view mine(reinterpret_cast<const char*>(largest_shapes.data()),
                              largest_shapes.size() * sizeof(std::int64_t));
  const int first = rank->grid.rank_at({.pipe = rank->map.rank_of(schedule::StageId(0)).value,
                                        .data = rank->comms.data().rank(),
                                        .model = 0});
  const std::string text = world.all().all_gather_text(mine)[static_cast<std::size_t>(first)];
  if (text.empty()) return std::nullopt;  // no step was trained
  ShapeNumbers numbers(text.size() / sizeof(std::int64_t));
  std::memcpy(numbers.data(), text.data(), text.size());
  const auto meta = tensor::make_meta_allocator();
  auto next = numbers.cbegin();
  model::MicroBatch example;
  example.inputs = take_shapes(meta, next);
  example.labels = take_shapes(meta, next);
  example.ids.resize(static_cast<std::size_t>(example.inputs.at(0).dim(0)));
  return planned_memory(example);
}

std::vector<RankReport> Engine::State::rank_reports(const ReportOptions& report_options) {
  require_usable();
  Ballot mine = ballot(CallKind::kReport);
  mine.options = report_options.plan ? 1 : 0;
  agree(mine);
  std::optional<RankMemory> plan;
  if (report_options.plan) {
    vote_after(CallKind::kReport, [&] { plan = plan_for_largest(); });
  }
  std::array<std::int64_t, kNumFields> fields{};
  fields[kTrainCalls] = trained;
  fields[kEvalCalls] = evaluated;
  fields[kTime] = call_clock.time().count();
  fields[kIdle] = call_clock.idle().count();
  fields[kMessages] = rank->sent.messages;
  fields[kMessageBytes] = rank->sent.bytes;
  fields[kReducedBytes] = rank->gradients->reduced_bytes();
  fields[kPeak] = rank->context.allocator->counters()->peak_bytes();
  fields[kBuffers] = memory_meter ? memory_meter->measured().peak.total() : kNone;
  fields[kPlanned] = plan ? plan->total() : kNone;
  fields[kPlannedBuffers] = plan ? plan->pipe_buffers.total() : kNone;
  const std::optional<DeviceBytes> device = device_bytes(*rank->context.allocator);
  fields[kAllocated] = device ? device->allocated : kNone;
  fields[kCached] = device ? device->cached : 0;
  fields[kDevicePeak] = device ? device->peak : 0;
  const PassGraphs::Use graphs = rank->graphs ? rank->graphs->use() : PassGraphs::Use();
  fields[kGraphBytes] = rank->graphs ? rank->graphs->bytes() : kNone;
  fields[kCaptured] = graphs.captured;
  fields[kReplayed] = graphs.replayed;
  fields[kPlain] = graphs.plain;
  const std::vector<std::int64_t> all = world.all().all_gather_wait(fields);
  std::vector<RankReport> reports;
  for (int r = 0; r < world.size(); ++r) {
    const auto begin = static_cast<std::size_t>(r) * kNumFields;
    RankReport& of_rank =
        reports.emplace_back(report_of(std::span(all).subspan(begin, kNumFields)));
    const comm::GridPosition place = rank->grid.position(r);
    of_rank.rank = r;
    of_rank.data_index = place.data;
    of_rank.model_index = place.model;
    for (const schedule::StageId stage : rank->map.stages_of(schedule::PipeRank(place.pipe))) {
      of_rank.stages.push_back(stage.value);
    }
  }
  return reports;
}

std::string to_text(std::span<const RankReport> ranks) {
  std::vector<std::vector<std::string>> rows = {{"rank", "stages", "replica", "model", "seconds",
                                                 "idle", "messages", "bytes sent", "bytes reduced",
                                                 "buffers", "planned", "all tensors", "planned"}};
  const bool devices =
      std::ranges::any_of(ranks, [](const auto& r) { return r.device.has_value(); });
  if (devices) rows[0].insert(rows[0].end(), {"device", "cached", "peak"});
  const bool graphs =
      std::ranges::any_of(ranks, [](const auto& r) { return r.graphs.has_value(); });
  if (graphs) rows[0].insert(rows[0].end(), {"graphs", "replayed", "not"});
  for (const RankReport& report : ranks) {
    const double idle = report.seconds > 0.0 ? report.idle_seconds / report.seconds : 0.0;
    rows.push_back({std::to_string(report.rank), stages_text(report.stages),
                    std::to_string(report.data_index), std::to_string(report.model_index),
                    formatted("%.3f", report.seconds), formatted("%.1f %%", 100.0 * idle),
                    grouped(report.messages), grouped(report.message_bytes),
                    grouped(report.reduced_bytes), bytes_text(report.buffer_bytes),
                    bytes_text(report.planned_buffer_bytes), grouped(report.peak_bytes),
                    bytes_text(report.planned_bytes)});
    if (devices) {
      const DeviceBytes bytes = report.device.value_or(DeviceBytes());
      rows.back().insert(rows.back().end(),
                         {grouped(bytes.allocated), grouped(bytes.cached), grouped(bytes.peak)});
    }
    if (graphs) {
      const GraphReport of = report.graphs.value_or(GraphReport());
      rows.back().insert(rows.back().end(),
                         {grouped(of.bytes), grouped(of.replayed), grouped(of.plain)});
    }
  }
  return text_table(rows);
}

}  // namespace penstock::engine
