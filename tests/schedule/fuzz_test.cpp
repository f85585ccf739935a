// Whatever bytes stand in a file, it is refused with a ScheduleError, or read, written and read
// again to the same. PENSTOCK_FUZZ_INPUTS says how many inputs each reader gets.
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "schedule/csv.h"
#include "schedule/io/chrome_trace.h"
#include "schedule/io/costs_json.h"
#include "schedule/io/time_grid_json.h"
#include "schedule/rules.h"
#include "schedule/text.h"
#include "tests/schedule/streams.h"
#include "tests/schedule/trace_support.h"

namespace penstock::schedule {
namespace {

int inputs() {
  const char* const wanted = std::getenv("PENSTOCK_FUZZ_INPUTS");
  return wanted == nullptr ? 5'000 : std::atoi(wanted);
}

// Puts texts of the right kind a little out of order.
class Mutator {
 public:
  explicit Mutator(std::vector<std::string> seeds) : seeds_(std::move(seeds)) {}

  std::string next() {
    std::string text = seeds_[below(seeds_.size())];
    for (std::size_t edits = 1 + below(4); edits > 0; --edits) edit(text);
    return text;
  }

 private:
  std::size_t below(std::size_t bound) { return random_() % bound; }

  // A piece of a text, this one or another.
  std::string piece(const std::string& text) {
    if (text.empty()) return {};
    return text.substr(below(text.size()), 1 + below(24));
  }

  void edit(std::string& text) {
    constexpr std::string_view kLikely = "{}[]\",:0123456789.eE+-;()_FBIWO \r\n\\untrue";
    const std::size_t at = text.empty() ? 0 : below(text.size());
    switch (below(7)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(below(256));
        break;
      case 1:
        if (!text.empty()) text[at] = kLikely[below(kLikely.size())];
        break;
      case 2:
        text.erase(at, 1 + below(16));
        break;
      case 3:
        text.insert(at, 1, kLikely[below(kLikely.size())]);
        break;
      case 4:
        text.insert(at, piece(seeds_[below(seeds_.size())]));
        break;
      case 5:  // another digit in place of one: most results are still of the right form
        if (const auto digit = text.find_first_of("0123456789", at); digit != std::string::npos) {
          text[digit] = static_cast<char>('0' + below(10));
        }
        break;
      case 6:
        text.insert(at, piece(text));
        break;
      default:
        break;
    }
  }

  std::mt19937 random_{20260101};
  std::vector<std::string> seeds_;
};

// `reread`: reads a text, writes what it read, and gives that text. It must then be its own image.
void fuzz(std::vector<std::string> seeds,
          const std::function<std::string(const std::string&)>& reread) {
  for (const std::string& seed : seeds) reread(seed);  // else nothing would be shown below
  Mutator mutator(std::move(seeds));
  int accepted = 0;
  const int wanted = inputs();
  for (int i = 0; i < wanted; ++i) {
    const std::string text = mutator.next();
    try {
      const std::string written = reread(text);
      ++accepted;
      ASSERT_EQ(reread(written), written) << text;
    } catch (const ScheduleError& error) {
      ASSERT_FALSE(std::string_view(error.what()).empty());
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, wanted);
}

TEST(Fuzz, CsvTables) {
  const auto csv_of = [](const RowSource& rows, CsvTransfers transfers) {
    return to_csv(make_table(rows), transfers);
  };
  const ScheduleArgs two{.ranks = 2, .micro_batches = 4, .chunks = 2};
  fuzz({csv_of(one_f_one_b_rows({.ranks = 2, .micro_batches = 3}), CsvTransfers::kNone),
        csv_of(zbv_rows(two), CsvTransfers::kEarly),
        csv_of(dualpipev_rows(two), CsvTransfers::kNone), "0F0,,0B0\r\n,1F0,1B0\r\n"},
       [](const std::string& text) { return to_csv(parse_csv(text)); });
}

TEST(Fuzz, StreamTexts) {
  const auto pipe = lower_all("zbv", zbv_rows({.ranks = 2, .micro_batches = 3, .chunks = 2}));
  fuzz({to_text(*pipe[0]), to_text(*pipe[1])},
       [](const std::string& text) { return to_text(parse_text(text)); });
}

TEST(Fuzz, CostsJson) {
  Costs costs = uniform_costs(2, 1);
  costs.latency = 0.25;
  costs.overlap = true;
  fuzz({to_json(costs), to_json(uniform_costs(1, 3))},
       [](const std::string& text) { return to_json(costs_from_json(text, "costs")); });
}

TEST(Fuzz, TimeGridJson) {
  fuzz({to_json(TimeGrid(TimeGridKind::kGPipe, 1, 1)),
        to_json(TimeGrid(TimeGridKind::kOneForwardOneBackward, 2, 2))},
       [](const std::string& text) { return to_json(time_grid_from_json(text, "grid")); });
}

TEST(Fuzz, StageAssignmentJson) {
  fuzz({to_json(StageAssignment::uniform(5, 3))},
       [](const std::string& text) { return to_json(stage_assignment_from_json(text, "stages")); });
}

TEST(Fuzz, ChromeTraces) {
  fuzz({to_chrome_trace(two_ranks())},
       [](const std::string& text) { return to_chrome_trace(trace_from_chrome(text, "trace")); });
}

}  // namespace
}  // namespace penstock::schedule
