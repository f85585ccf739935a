// Costs as a JSON file, both ways.
#include "schedule/io/costs_json.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

Costs some_costs() {
  Costs costs;
  costs.stages = {{0.1, 0.2, 1.0 / 3.0, 4096.0, 512.0}, {1e-7, 3.0, 0.0, 1e18, 0.0}};
  costs.latency = 2e-5;
  costs.seconds_per_byte = 1e-10;
  costs.optimizer_step = 0.25;
  costs.overlap = true;
  return costs;
}

void expect_equal(const Costs& a, const Costs& b) {
  ASSERT_EQ(a.stages.size(), b.stages.size());
  for (std::size_t i = 0; i < a.stages.size(); ++i) {
    EXPECT_EQ(a.stages[i].forward, b.stages[i].forward);
    EXPECT_EQ(a.stages[i].backward_input, b.stages[i].backward_input);
    EXPECT_EQ(a.stages[i].backward_weight, b.stages[i].backward_weight);
    EXPECT_EQ(a.stages[i].activation_bytes, b.stages[i].activation_bytes);
    EXPECT_EQ(a.stages[i].message_bytes, b.stages[i].message_bytes);
  }
  EXPECT_EQ(a.latency, b.latency);
  EXPECT_EQ(a.seconds_per_byte, b.seconds_per_byte);
  EXPECT_EQ(a.optimizer_step, b.optimizer_step);
  EXPECT_EQ(a.overlap, b.overlap);
}

constexpr const char* kOneStage =
    R"({"stages": [{"forward": 1, "backward_input": 2, "backward_weight": 3.5,
                    "activation_bytes": 4, "message_bytes": 5}]})";

TEST(CostsJson, IsReadBackBitForBit) {
  expect_equal(costs_from_json(to_json(some_costs()), "costs.json"), some_costs());
}

TEST(CostsJson, IsWrittenForPeopleToo) {
  Costs costs;
  costs.stages = {{1, 1, 1, 8, 2}, {1, 1, 0.5, 8, 0}};
  costs.latency = 0.125;
  EXPECT_EQ(to_json(costs),
            "{\"stages\": [\n"
            "  {\"forward\":1.0,\"backward_input\":1.0,\"backward_weight\":1.0,"
            "\"activation_bytes\":8.0,\"message_bytes\":2.0},\n"
            "  {\"forward\":1.0,\"backward_input\":1.0,\"backward_weight\":0.5,"
            "\"activation_bytes\":8.0,\"message_bytes\":0.0}\n"
            "],\n"
            "\"latency\": 0.125,\n"
            "\"seconds_per_byte\": 0.0,\n"
            "\"optimizer_step\": 0.0,\n"
            "\"overlap\": false\n"
            "}\n");
}

TEST(CostsJson, NeedsTheStagesOnly) {
  Costs expected;
  expected.stages = {{1, 2, 3.5, 4, 5}};
  expect_equal(costs_from_json(kOneStage, "costs.json"), expected);
}

TEST(CostsJson, ErrorsNameFieldValueAndExpectation) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {R"("forward": 1)", R"("forward": "fast")",
       R"(costs.json: stages[0].forward is "fast"; expected a number)"},
      {R"("forward": 1)", R"("forward": -1)", "stages[0].forward is -1; expected 0 or more"},
      {R"("forward": 1)", R"("forward": null)", "stages[0].forward is null; expected a number"},
      {R"("forward": 1)", R"("forward": 1e999)", "costs.json: not JSON text: number overflow"},
      {R"("forward": 1)", R"("forward": NaN)", "costs.json: not JSON text: parse error at line 1"},
      {R"("forward": 1,)", "", "costs.json: stages[0].forward is missing"},
      {R"("forward": 1)", R"("forwards": 1, "forward": 1)",
       "stages[0].forwards is 1, which is no known key; expected only activation_bytes, "
       "backward_input, backward_weight, forward, message_bytes"},
      {R"("forward": 1)", R"("forward": 1, "forward": 2)", R"(duplicate key "forward")"},
      {R"({"stages": )", R"({"bandwidth": 3, "stages": )",
       "costs.json: bandwidth is 3, which is no known key; expected only latency, "
       "optimizer_step, overlap, seconds_per_byte, stages"},
      {R"({"stages": )", R"({"latency": [], "stages": )", "latency is []; expected a number"},
      {R"({"stages": )", R"({"overlap": 1, "stages": )", "overlap is 1; expected true or false"},
      {R"({"stages": )", R"({"stages": [], "more": )", "expected the costs of at least one stage"},
      {R"({"stages": )", R"({"stage": )", "costs.json: stages is missing"},
      {R"([{)", R"([7, {)", "costs.json: stages[0] is 7; expected an object"},
  };
  for (const auto& [part, by, message] : cases) {
    std::string text = kOneStage;
    const std::size_t at = text.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    text.replace(at, std::string(part).size(), by);
    const std::string error = error_of([&] { costs_from_json(text, "costs.json"); });
    EXPECT_NE(error.find(message), std::string::npos) << by << ": " << error;
  }
}

TEST(CostsJson, RefusesTextsThatAreCutOff) {
  const std::string text = to_json(some_costs());
  const std::size_t end = text.find_last_of('}');
  for (std::size_t length = 0; length <= end; ++length) {
    EXPECT_NE(error_of([&] { costs_from_json(text.substr(0, length), "costs.json"); }), "");
  }
}

}  // namespace
}  // namespace penstock::schedule
