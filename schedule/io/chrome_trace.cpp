#include "schedule/io/chrome_trace.h"

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "schedule/io/json_reader.h"
#include "schedule/text.h"

namespace penstock::schedule {
namespace {

constexpr double kMicrosecondsPerSecond = 1e6;

const char* name_of(Lane lane) {
  switch (lane) {
    case Lane::kHost:
      return "host";
    case Lane::kCompute:
      return "compute";
    case Lane::kComm:
      return "comm";
  }
  return "";
}

int thread_of(const Instruction& instruction) {
  return static_cast<int>(lane(instruction.opcode));
}

// Rounded, so that the end of one and the start of the next stay equal if they were.
double microseconds(double seconds) {
  return std::round(seconds * kMicrosecondsPerSecond * 1e3) / 1e3;
}

Json metadata(const char* what, std::size_t process, int thread, Json args) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", args}};
}

void add_names(Json& events, const TraceRank& rank, std::size_t process) {
  events.push_back(
      metadata("process_name", process, 0, {{"name", rank.name}, {"replica", rank.replica}}));
  events.push_back(metadata("process_sort_index", process, 0, {{"sort_index", process}}));
  for (const Lane lane : {Lane::kHost, Lane::kCompute, Lane::kComm}) {
    events.push_back(
        metadata("thread_name", process, static_cast<int>(lane), {{"name", name_of(lane)}}));
  }
}

Json event_of(const TraceSpan& span, std::size_t process) {
  const double start = microseconds(span.start);
  Json args = {{"instruction", to_text(span.instruction)}, {"step", span.step}};
  if (span.stage != StageId{}) args["stage"] = span.stage.value;
  if (span.instruction.micro_batch != MicroBatchId{}) {
    args["micro_batch"] = span.instruction.micro_batch.value;
  }
  return {{"ph", "X"},
          {"name", name(span.instruction.opcode)},
          {"cat", name_of(lane(span.instruction.opcode))},
          {"pid", process},
          {"tid", thread_of(span.instruction)},
          {"ts", start},
          {"dur", microseconds(span.end) - start},
          {"args", std::move(args)}};
}

// One end of an arrow. "bp": "e" ties its end to the event that encloses it, not to the next one.
Json arrow_end(const char* phase, std::size_t id, std::size_t process, const TraceSpan& span,
               double time) {
  return {{"ph", phase},
          {"name", "transfer"},
          {"cat", "transfer"},
          {"id", id},
          {"pid", process},
          {"tid", thread_of(span.instruction)},
          {"ts", microseconds(time)},
          {"bp", "e"}};
}

// --- reading

using Processes = std::map<std::int64_t, TraceRank>;

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

// More than any rank has; pictures show a shade of each.
constexpr std::int32_t kMostChunks = 1024;

// The rank of an event's process, made when it is first seen.
TraceRank& rank_of(Processes& processes, JsonObject& event) {
  const std::int64_t process = event.take("pid").integer(0, kMost);
  const auto [found, is_new] = processes.try_emplace(process);
  if (is_new) found->second.name = "rank " + std::to_string(process);
  return found->second;
}

Instruction read_instruction(const JsonField& field) {
  try {
    const std::vector<Step> steps = parse_text("0: " + std::string(field.string()));
    if (steps.size() == 1 && steps[0].size() == 1) return steps[0][0];
  } catch (const ScheduleError&) {  // told below, with the field's place
  }
  field.fail("one instruction, such as \"ForwardPass(c0 m0 b0)\"");
}

constexpr double kMostMicroseconds = 1e15;  // 31 years

double read_microseconds(const JsonField& field, double least) {
  const double time = field.number(least);
  if (time > kMostMicroseconds) field.fail("at most 1e15 (microseconds)");
  return time / kMicrosecondsPerSecond;
}

// False if the event is no instruction.
bool read_complete_event(JsonObject event, Processes& processes) {
  if (!event.offers("args")) return false;
  JsonObject args(event.take("args"));
  if (!args.offers("instruction")) return false;
  TraceSpan span;
  const JsonField instruction = args.take("instruction");
  span.instruction = read_instruction(instruction);
  if (span.instruction.chunk.value >= kMostChunks) {
    instruction.fail("a chunk from 0 to " + std::to_string(kMostChunks - 1));
  }
  if (args.offers("step")) {
    span.step = args.take("step").integer(0, std::numeric_limits<std::int64_t>::max());
  }
  if (args.offers("stage")) {
    span.stage = StageId{static_cast<std::int32_t>(args.take("stage").integer(0, kMost))};
  }
  span.start = read_microseconds(event.take("ts"), -kMostMicroseconds);
  span.end = span.start + read_microseconds(event.take("dur"), 0.0);
  rank_of(processes, event).spans.push_back(span);
  return true;
}

void read_metadata(JsonObject event, Processes& processes) {
  if (event.take("name").string() != "process_name") return;
  JsonObject args(event.take("args"));
  TraceRank& rank = rank_of(processes, event);
  rank.name = args.take("name").string();
  if (args.offers("replica")) {
    rank.replica = static_cast<int>(args.take("replica").integer(0, kMost));
  }
}

std::string title_of(JsonObject& document, std::string_view origin) {
  if (!document.offers("otherData")) return std::string(origin);
  JsonObject other(document.take("otherData"));
  if (!other.offers("title")) return std::string(origin);
  return std::string(other.take("title").string());
}

}  // namespace

std::string to_chrome_trace(const Trace& trace) {
  Json events = Json::array();
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    add_names(events, trace.ranks[r], r);
    for (const TraceSpan& span : trace.ranks[r].spans) events.push_back(event_of(span, r));
  }
  std::size_t id = 0;
  for (const Transfer& transfer : transfers(trace)) {
    const TraceSpan& send = trace.ranks[transfer.from_rank].spans[transfer.from_span];
    const TraceSpan& recv = trace.ranks[transfer.to_rank].spans[transfer.to_span];
    events.push_back(arrow_end("s", id, transfer.from_rank, send, send.start));
    events.push_back(arrow_end("f", id, transfer.to_rank, recv, recv.end));
    ++id;
  }
  return Json{{"displayTimeUnit", "ms"},
              {"otherData", {{"title", trace.title}}},
              {"traceEvents", std::move(events)}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Trace trace_from_chrome(std::string_view text, std::string_view origin) {
  const Json json = parse_json(text, origin);
  JsonObject document({json, std::string(origin) + ':'});
  const JsonField events = document.take("traceEvents");
  Processes processes;
  bool instructions = false;
  bool others = false;  // which make a file of another program
  for (std::size_t i = 0; i < events.array_size(); ++i) {
    JsonObject event(events[i]);
    const std::string_view phase = event.take("ph").string();
    if (phase == "X") (read_complete_event(event, processes) ? instructions : others) = true;
    if (phase == "M") read_metadata(event, processes);
  }
  if (!instructions && (others || processes.empty())) {
    throw ScheduleError("[schedule::json] " + std::string(origin) +
                        " holds no instructions; expected events of phase X with "
                        "args.instruction, as penstock-train and penstock-schedule write them");
  }
  Trace trace{title_of(document, origin), {}};
  for (auto& [process, rank] : processes) trace.ranks.push_back(std::move(rank));
  return trace;
}

}  // namespace penstock::schedule
