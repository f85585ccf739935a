// Chrome traces: as their viewers want them, and read back.
#include "schedule/io/chrome_trace.h"

#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/schedule/streams.h"
#include "tests/schedule/trace_support.h"

namespace penstock::schedule {
namespace {

using nlohmann::json;

Simulated overlapped_run() {
  Costs costs = uniform_costs(4, 2);
  costs.overlap = true;
  costs.latency = 0.125;
  costs.optimizer_step = 0.5;
  return simulated("dualpipev", dualpipev_rows({.ranks = 2, .micro_batches = 5, .chunks = 2}),
                   costs);
}

TEST(ChromeTrace, IsReadBack) {
  EXPECT_EQ(trace_from_chrome(to_chrome_trace(two_ranks()), "file"), two_ranks());
  const Trace trace = overlapped_run().trace;  // times are eighths: exact in microseconds
  EXPECT_EQ(trace_from_chrome(to_chrome_trace(trace), "file"), trace);
  const Trace idle{"idle", {{"rank 0", 0, {}}, {"rank 1", 2, {}}}};
  EXPECT_EQ(trace_from_chrome(to_chrome_trace(idle), "file"), idle);
}

TEST(ChromeTrace, KeepsReplicasNamesAndTheTitle) {
  Trace trace = two_ranks();
  trace.title = "a \"title\" – \xff";
  trace.ranks[1].name = "rank 7 (replica 3)";
  trace.ranks[1].replica = 3;
  const Trace read = trace_from_chrome(to_chrome_trace(trace), "file");
  EXPECT_EQ(read.title, "a \"title\" – \xef\xbf\xbd");  // what is no UTF-8 is replaced
  EXPECT_EQ(read.ranks, trace.ranks);
}

// Perfetto drops events that overlap without lying within one another.
TEST(ChromeTrace, EventsOfAThreadLieBesideOrWithinOneAnother) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> threads;
  int events = 0;
  const json trace = json::parse(to_chrome_trace(overlapped_run().trace));
  for (const json& event : trace["traceEvents"]) {
    if (event.at("ph") != "X") continue;
    ++events;
    const double start = event.at("ts");
    threads[{event.at("pid"), event.at("tid")}].emplace_back(start,
                                                             start + event.at("dur").get<double>());
  }
  EXPECT_GT(events, 100);
  EXPECT_EQ(threads.size(), 5U);  // three lanes of rank 0; rank 1 loads nothing
  for (const auto& [thread, spans] : threads) {
    for (std::size_t i = 1; i < spans.size(); ++i) {
      const auto& [start, end] = spans[i];
      const auto& [before_start, before_end] = spans[i - 1];
      EXPECT_TRUE(start >= before_end - 1e-3 || start == before_start);
    }
  }
}

TEST(ChromeTrace, HasAnArrowForEachTransfer) {
  const json trace = json::parse(to_chrome_trace(two_ranks()));
  std::map<int, json> begun;
  int arrows = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "s") begun[event["id"]] = event;
    if (event["ph"] != "f") continue;
    ++arrows;
    ASSERT_TRUE(begun.contains(event["id"]));
    EXPECT_NE(begun[event["id"]]["pid"], event["pid"]);
    EXPECT_LT(begun[event["id"]]["ts"], event["ts"]);
  }
  EXPECT_EQ(arrows, 2);
}

TEST(ChromeTrace, ReadsPastWhatIsNoInstruction) {
  const std::string text = R"~({"traceEvents": [
      {"ph": "C", "name": "memory", "pid": 4, "ts": 0, "args": {"bytes": 1}},
      {"ph": "X", "name": "sleep", "pid": 4, "tid": 9, "ts": 0, "dur": 1},
      {"ph": "X", "name": "sleep", "pid": 4, "tid": 9, "ts": 0, "dur": 1, "args": {"why": 1}},
      {"ph": "X", "name": "ForwardPass", "pid": 4, "tid": 1, "ts": 1500000, "dur": 250000,
       "args": {"instruction": "ForwardPass(c0 m3 b1)", "more": true}}]})~";
  const Trace trace = trace_from_chrome(text, "file");
  EXPECT_EQ(trace.title, "file");
  ASSERT_EQ(trace.ranks.size(), 1U);
  EXPECT_EQ(trace.ranks[0].name, "rank 4");
  ASSERT_EQ(trace.ranks[0].spans.size(), 1U);
  const Instruction forward =
      instruction(Opcode::kForwardPass, ChunkId{0}, MicroBatchId{3}, BufferId{1});
  EXPECT_EQ(trace.ranks[0].spans[0], (TraceSpan{forward, {}, 0, 1.5, 1.75}));
}

TEST(ChromeTrace, ErrorsNameFieldValueAndExpectation) {
  const auto error = [](const std::string& event) {
    const std::string text = "{\"traceEvents\": [" + event + "]}";
    return error_of([&] { trace_from_chrome(text, "t.json"); });
  };
  const std::pair<const char*, const char*> cases[] = {
      {"", "t.json holds no instructions"},
      {R"~({"ph": "X", "name": "sleep", "pid": 1, "ts": 0, "dur": 1})~", "holds no instructions"},
      {"3", "t.json: traceEvents[0] is 3; expected an object"},
      {"{}", "t.json: traceEvents[0].ph is missing"},
      {R"~({"ph": 1})~", "traceEvents[0].ph is 1; expected a string"},
      {R"~({"ph": "X", "args": []})~", "traceEvents[0].args is []; expected an object"},
      {R"~({"ph": "X", "args": {"instruction": "Fly(c0)"}})~",
       R"~(args.instruction is "Fly(c0)"; expected one instruction, such as)~"},
      {R"~({"ph": "X", "args": {"instruction": "ReduceGrads(c0) | ReduceGrads(c1)"}})~",
       "expected one instruction"},
      {R"~({"ph": "X", "args": {"instruction": "ReduceGrads(c2147483647)"}})~",
       R"~(args.instruction is "ReduceGrads(c2147483647)"; expected a chunk from 0 to 1023)~"},
      {R"~({"ph": "X", "args": {"instruction": "ReduceGrads(c0)"}})~",
       "traceEvents[0].ts is missing"},
      {R"~({"ph": "X", "ts": 0, "dur": 1e16, "args": {"instruction": "ReduceGrads(c0)"}})~",
       "traceEvents[0].dur is 1e+16; expected at most 1e15"},
      {R"~({"ph": "X", "ts": -1e16, "args": {"instruction": "ReduceGrads(c0)"}})~",
       "traceEvents[0].ts is -1e+16; expected"},
      {R"~({"ph": "X", "ts": 0, "dur": -1, "args": {"instruction": "ReduceGrads(c0)"}})~",
       "traceEvents[0].dur is -1; expected 0 or more"},
      {R"~({"ph": "X", "ts": 0, "dur": 1, "pid": "a", "args": {"instruction": "ReduceGrads(c0)"}})~",
       R"~(traceEvents[0].pid is "a"; expected an integer from 0)~"},
      {R"~({"ph": "X", "args": {"instruction": "ReduceGrads(c0)", "stage": -1}})~",
       "args.stage is -1; expected an integer from 0"},
      {R"~({"ph": "M", "name": "process_name", "pid": 0})~", "traceEvents[0].args is missing"},
  };
  for (const auto& [event, message] : cases) {
    EXPECT_NE(error(event).find(message), std::string::npos) << event << ": " << error(event);
  }
  EXPECT_NE(error_of([] { trace_from_chrome("[]", "t.json"); }).find("t.json: is []"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::schedule
