// The orders of the closed rules: golden rows, and what must hold for every size.
#include "schedule/rules.h"

#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "schedule/registry.h"
#include "tests/schedule/streams.h"
#include "tests/schedule/tables.h"

namespace penstock::schedule {
namespace {

using Rule = RowSource (*)(const ScheduleArgs&);

const std::map<std::string, Rule>& rules() {
  static const std::map<std::string, Rule> all = {
      {"gpipe", gpipe_rows},
      {"gpipe_reversed", gpipe_reversed_rows},
      {"looped_bfs", looped_bfs_rows},
      {"1f1b", one_f_one_b_rows},
      {"zb1p", zb1p_rows},
      {"interleaved_1f1b", interleaved_1f1b_rows},
      {"zb_h1", zb_h1_rows},
      {"zbv", zbv_rows},
      {"dualpipev", dualpipev_rows},
      {"forward_only", forward_only_rows},
  };
  return all;
}

ScheduleArgs sizes(int ranks, int chunks, int micro_batches) {
  return {.ranks = ranks, .micro_batches = micro_batches, .chunks = chunks};
}

std::vector<std::string> words(const Table& table) {
  std::vector<std::string> out;
  for (const Row& row : table.rows) out.push_back(to_words(row));
  return out;
}

using Words = std::vector<std::string>;

Words words(const char* rule, int ranks, int chunks, int micro_batches) {
  return words(make_table(rules().at(rule)(sizes(ranks, chunks, micro_batches))));
}

// Every rule that takes the shape, for all shapes of the property tests.
void for_all_shapes(const std::function<void(const std::string& name, const ScheduleArgs& args,
                                             const Table& table)>& test) {
  for (const auto& [name, rule] : rules()) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      for (const int chunks : {1, 2, 3, 4}) {
        for (int m = 1; m <= 3 * ranks + 1; ++m) {
          const ScheduleArgs args = sizes(ranks, chunks, m);
          const bool single = name == "1f1b" || name == "zb_h1";
          const bool v = name == "zbv" || name == "dualpipev";
          const bool taken = (!single || chunks == 1) && (!v || chunks == 2) &&
                             (name != "dualpipev" || m >= 2 * ranks);
          SCOPED_TRACE(name + " ranks " + std::to_string(ranks) + " chunks " +
                       std::to_string(chunks) + " micro batches " + std::to_string(m));
          if (taken) {
            test(name, args, make_table(rule(args)));
          } else {
            EXPECT_THROW(rule(args), ScheduleError);
          }
        }
      }
    }
  }
}

TEST(Rules, OrdersMakespansAndPeaksOfGoldenRows) {
  std::ifstream file(PENSTOCK_GOLDEN_DIR "/table_schedules.jsonl");
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("type")) continue;
    const auto args = sizes(json.at("ranks"), json.at("chunks"), json.at("micro_batches"));
    const std::string name = json.at("schedule");
    SCOPED_TRACE(name + " " + std::to_string(args.ranks) + "x" + std::to_string(args.chunks) +
                 " micro batches " + std::to_string(args.micro_batches));
    const Table table = make_table(rules().at(name)(args));
    const auto golden = json.at("rows").get<std::vector<std::vector<std::string>>>();
    ASSERT_EQ(table.rows.size(), golden.size());
    for (std::size_t rank = 0; rank < golden.size(); ++rank) {
      std::string expected;
      for (const std::string& cell : golden[rank]) expected += (expected.empty() ? "" : " ") + cell;
      EXPECT_EQ(to_words(table.rows[rank]), expected) << "rank " << rank;
    }
    const Played equal = play(table, {1, 1, 1, args.chunks});
    EXPECT_TRUE(equal.complete) << equal.stuck;
    EXPECT_NEAR(equal.makespan, json.at("makespan_F1I1W1").get<double>(), 1e-9);
    EXPECT_NEAR(play(table, {2, 3, 1, args.chunks}).makespan,
                json.at("makespan_F2I3W1").get<double>(), 1e-9);
    EXPECT_EQ(equal.peaks, json.at("peak_activations").get<std::vector<int>>());
    ++rows;
  }
  EXPECT_EQ(rows, 336);
}

TEST(Rules, OrdersThatPyTorchsDocumentsQuote) {
  EXPECT_EQ(words("1f1b", 4, 1, 5)[0], "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0B2 0B3 0B4");
  EXPECT_EQ(words("1f1b", 4, 1, 5)[3], "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4");
  EXPECT_EQ(words("looped_bfs", 2, 2, 2)[0], "0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0");
  EXPECT_EQ(words("interleaved_1f1b", 2, 2, 4),
            (Words{"0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
                   "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"}));
  EXPECT_EQ(words("zb1p", 3, 1, 4)[0], "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3");
  EXPECT_EQ(words("zb_h1", 3, 1, 4)[2], "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3");
  EXPECT_EQ(words("zbv", 2, 2, 4)[1],
            "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 "
            "1W2 2W3 1W3");
  EXPECT_EQ(words("dualpipev", 2, 2, 4)[0],
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1)OVERLAP_F_B (3F2;0B0)OVERLAP_F_B 3B2 "
            "(3F3;0B1)OVERLAP_F_B 3B3 0I2 0W2 0I3 0W3");
}

TEST(Rules, EveryTableIsWholeAndRunsToItsEnd) {
  int tables = 0;
  for_all_shapes([&tables](const std::string& name, const ScheduleArgs&, const Table& table) {
    EXPECT_NO_THROW(check_table(table));
    const Played played = play(table);
    EXPECT_TRUE(played.complete) << "stuck at " << played.stuck;
    EXPECT_EQ(table.trains, name != "forward_only");
    ++tables;
  });
  EXPECT_GT(tables, 1500);
}

// The bounds of rules.h, in chunks.
int peak_bound(const std::string& name, int ranks, int chunks, int m, int rank) {
  const int rounds = std::max(1, m / ranks);
  const int q = (m + rounds - 1) / rounds;
  const int later = ranks - 1 - rank;
  if (name == "1f1b") return std::min(m, later + 1);
  if (name == "zb1p" || name == "zb_h1") return std::min(chunks * m, (chunks - 1) * q + ranks);
  if (name == "zbv") return std::min(2 * m, 2 * ranks);
  if (name == "dualpipev") return 2 * ranks + 1;
  if (name != "interleaved_1f1b") return chunks * m;
  return std::min(chunks * m, chunks == 1 ? later + 1 : (chunks - 1) * q + 2 * later + 1);
}

TEST(Rules, PeaksKeepWithinTheirFormulasAndReachThem) {
  std::map<std::string, int> reached;
  for_all_shapes([&reached](const std::string& name, const ScheduleArgs& args, const Table& table) {
    if (!table.trains) return;
    const Played played = play(table);
    for (int rank = 0; rank < args.ranks; ++rank) {
      const int bound = peak_bound(name, args.ranks, args.chunks, args.micro_batches, rank);
      EXPECT_LE(played.peaks[static_cast<std::size_t>(rank)], bound) << "rank " << rank;
      reached[name] += played.peaks[static_cast<std::size_t>(rank)] == bound;
    }
  });
  EXPECT_EQ(reached.size(), rules().size() - 1);
  for (const auto& [name, times] : reached) EXPECT_GT(times, 100) << name;
}

TEST(Rules, IdleTimeIsThatOfTheFormula) {
  for_all_shapes([](const std::string& name, const ScheduleArgs& args, const Table& table) {
    const int p = args.ranks;
    const int m = args.micro_batches;
    const auto idle = [&](double f, double i, double w) {
      return play(table, {f, i, w, args.chunks}).makespan - m * (f + i + w);
    };
    if (name == "gpipe" && args.chunks == 1) {
      EXPECT_NEAR(idle(1, 2, 3), 6.0 * (p - 1), 1e-9);
    }
    if (name == "1f1b") {
      EXPECT_NEAR(idle(1, 2, 3), 6.0 * (p - 1), 1e-9);
    }
    if (m < p) return;
    const double shared = static_cast<double>(p - 1) / args.chunks;
    if (name == "interleaved_1f1b" || name == "looped_bfs" || name == "gpipe") {
      EXPECT_NEAR(idle(1, 2, 3), 6 * shared, 1e-9);
    }
    if (name == "zb1p" || name == "zb_h1") {
      EXPECT_NEAR(idle(1, 1, 1), shared, 1e-9);
      EXPECT_NEAR(idle(1, 2, 1), 2 * shared, 1e-9);
    }
    if (name == "zbv" && m >= 2 * p - 1) {
      EXPECT_NEAR(idle(1, 1, 1), shared, 1e-9);
    }
  });
}

TEST(Rules, InterleavedOfOneChunkIsOneForwardOneBackward) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int m = 1; m <= 19; ++m) {
      EXPECT_EQ(words("interleaved_1f1b", ranks, 1, m), words("1f1b", ranks, 1, m));
      EXPECT_EQ(words("zb_h1", ranks, 1, m), words("zb1p", ranks, 1, m));
    }
  }
}

TEST(Rules, OneForwardOneBackwardIsWhatTheStreamOfThatNameComputes) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int m = 1; m <= 19; ++m) {
      const Table streamed = table_of(make_pipe("train", sizes(ranks, 1, m)));
      EXPECT_EQ(words(streamed), words("1f1b", ranks, 1, m)) << ranks << " ranks, M " << m;
    }
  }
}

TEST(Rules, RoundsOfUnevenSizeBeginWithTheLargeOnes) {
  // 5 micro batches on 2 ranks: rounds of 3 and 2.
  const Words rows = words("interleaved_1f1b", 2, 2, 5);
  EXPECT_EQ(rows[1].substr(0, 47), "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4");
  EXPECT_EQ(rows[0].substr(0, 39), "0F0 0F1 0F2 2F0 2F1 2F2 2B0 0F3 2B1 0F4");
}

// The most outputs of one stage that wait for the next stage at a time, where each pass takes 1.
int most_waiting(const Table& table, const Played& played) {
  int most = 0;
  for (int stage = 0; stage + 1 < table.map.num_stages(); ++stage) {
    for (int m = 0; m < table.micro_batches; ++m) {
      const double now = played.done.at({'F', stage, m});
      int waiting = 0;
      for (int other = 0; other < table.micro_batches; ++other) {
        const double taken = played.done.at({'F', stage + 1, other}) - 1;
        waiting += played.done.at({'F', stage, other}) <= now && taken >= now;
      }
      most = std::max(most, waiting);
    }
  }
  return most;
}

TEST(Rules, ForwardOnlyKeepsRanksBusyAndFewOutputsWaitingOnAnyMap) {
  const std::vector<StageMap> maps = {
      StageMap::loop(4, 1), StageMap::loop(3, 2), StageMap::loop(4, 3),
      StageMap::v(4, 2),    StageMap::v(3, 3),    StageMap(std::vector<int>{0, 1, 0, 0, 2, 1, 2})};
  for (const StageMap& map : maps) {
    SCOPED_TRACE(to_text(map));
    const int ranks = map.num_ranks();
    int chunks = 0;  // of the busiest rank
    for (int rank = 0; rank < ranks; ++rank) {
      chunks = std::max(chunks, map.num_chunks(PipeRank{rank}));
    }
    std::map<int, int> waiting;
    for (const int m : {1, 2, 5, 24, 25, 48, 96}) {
      const Table table =
          make_table(forward_only_rows({.ranks = ranks, .micro_batches = m, .stage_map = map}));
      check_table(table);
      const Played played = play(table);
      ASSERT_TRUE(played.complete) << played.stuck;
      EXPECT_LE(played.makespan, m * chunks + map.num_stages()) << m;
      if (map == StageMap::loop(ranks, chunks) && m % ranks == 0) {
        EXPECT_EQ(played.makespan, m * chunks + ranks - 1) << m;
      }
      waiting[m] = most_waiting(table, played);
    }
    EXPECT_EQ(waiting[96], waiting[48]);
    EXPECT_LE(waiting[96], ranks);
  }
  EXPECT_EQ(words("forward_only", 2, 2, 5)[0], "0F0 0F1 2F0 2F1 0F2 0F3 2F2 2F3 0F4 2F4");
}

// What is wrong must be said in the config's words, with the schedule's name.
TEST(Rules, RefusalsNameScheduleKeyAndWayOut) {
  const auto refusal = [](const char* rule, const ScheduleArgs& args) {
    return error_of([&] { rules().at(rule)(args); });
  };
  for (const auto& [name, rule] : rules()) {
    const std::string where = "[schedule " + name + "] ";
    EXPECT_EQ(refusal(name.c_str(), {.ranks = 0}),
              where + "pipeline.stages is 0; expected 1 or more");
    EXPECT_EQ(refusal(name.c_str(), {.micro_batches = 0}),
              where + "gradient_accumulation_steps is 0; expected 1 or more");
    EXPECT_EQ(refusal(name.c_str(), {.chunks = 0}).substr(0, where.size() + 20),
              where + "pipeline.chunks is 0");
    EXPECT_EQ(refusal(name.c_str(), {.ranks = 3, .stage_map = StageMap::loop(2, 2)}),
              where + "pipeline.stage_map has 2 ranks; expected as many as pipeline.stages, 3");
  }
  EXPECT_EQ(refusal("dualpipev", {.ranks = 4, .micro_batches = 7, .chunks = 2}),
            "[schedule dualpipev] gradient_accumulation_steps is 7 and pipeline.stages is 4; "
            "expected at least twice as many micro batches as stages, so that two of each rank "
            "overlap; raise the first, lower the second or choose zbv, which takes any number");
  EXPECT_EQ(refusal("zbv", {.ranks = 4, .micro_batches = 7}),
            "[schedule zbv] pipeline.chunks is 1; expected 2: this schedule has two stages on each "
            "rank; set it to 2 or choose another pipeline.schedule");
  EXPECT_EQ(refusal("zbv", {.ranks = 2, .stage_map = StageMap::loop(2, 2)}),
            "[schedule zbv] pipeline.stage_map is 0,1,0,1; expected 0,1,1,0: this schedule has "
            "stages that go up the ranks and back again; leave it out or choose another "
            "pipeline.schedule");
  EXPECT_NE(refusal("zb1p", {.ranks = 2, .stage_map = StageMap::v(2, 2)}).find("0,1,0,1"),
            std::string::npos);
  EXPECT_NE(refusal("interleaved_1f1b", {.ranks = 2, .stage_map = StageMap(std::vector{0, 1, 0})})
                .find("expected 0,1: "),
            std::string::npos);
}

TEST(Rules, TheMapOfTheRuleMayBeGiven) {
  const auto given = [](const char* rule, const StageMap& map) {
    // `chunks` is not looked at.
    return words(make_table(
        rules().at(rule)({.ranks = 2, .micro_batches = 4, .chunks = 7, .stage_map = map})));
  };
  EXPECT_EQ(given("interleaved_1f1b", StageMap::loop(2, 3)), words("interleaved_1f1b", 2, 3, 4));
  EXPECT_EQ(given("zbv", StageMap::v(2, 2)), words("zbv", 2, 2, 4));
  EXPECT_EQ(given("1f1b", StageMap::loop(2, 1)), words("1f1b", 2, 1, 4));
  EXPECT_EQ(given("gpipe", StageMap::v(2, 2))[0],
            "0F0 0F1 0F2 0F3 3F0 3F1 3F2 3F3 3B0 3B1 3B2 3B3 0B0 0B1 0B2 0B3");
}

TEST(Rules, ARowOfALargePipeIsMadeByItself) {
  // Nothing but this row: all 1,024 would hold 17 million actions.
  const RowSource source = zb1p_rows(sizes(1024, 2, 4096));
  EXPECT_EQ(source.row(PipeRank{512}).size(), 3u * 2 * 4096);
  EXPECT_EQ(forward_only_rows(sizes(256, 2, 4096)).row(PipeRank{7}).size(), 2u * 4096);
}

}  // namespace
}  // namespace penstock::schedule
