// Engine::rank_reports: what each rank sent, how long it waited, and its memory against the plan.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "tests/engine/fixtures.h"
#include "tests/engine/reference.h"

namespace penstock::testing {
namespace {

using engine::RankReport;
using schedule::Opcode;

constexpr std::int64_t kRow = kWidth * 4;  // bytes of an activation, of one sample

// Of `train` steps and an evaluation of two micro batches; the same on all ranks.
std::vector<RankReport> reports_of(const RunSpec& run, int train, bool ties = false) {
  const auto by_rank = on_ranks<std::vector<RankReport>>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, ties ? tie6() : mlp8(), config_of(run),
                          ties ? token_samples(64) : mlp_samples(64));
    for (int step = 0; step < train; ++step) engine.train_batch();
    const auto held_out = ties ? token_samples(64) : mlp_samples(64);
    engine.eval_batch(*held_out, {.micro_batches = 2});
    // A call that is refused counts nothing.
    EXPECT_TRUE(thrown_by([&] {
                  engine.eval_batch(*held_out, {.micro_batches = 1000});
                }).starts_with("EndOfData"));
    std::vector<RankReport> reports = engine.rank_reports();
    engine.close();
    return reports;
  });
  for (const auto& reports : by_rank) {
    EXPECT_EQ(engine::to_text(reports), engine::to_text(by_rank[0]));
  }
  return by_rank[0];
}

TEST(RankReports, CountWhatWasSent) {
  const RunSpec run{.pipe = 2, .data = 2, .micro = 3, .gas = 4};
  const std::vector<RankReport> reports = reports_of(run, /*train=*/2);
  ASSERT_EQ(reports.size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const RankReport& report = reports[static_cast<std::size_t>(rank)];
    const bool first = rank < 2;
    EXPECT_EQ(report.rank, rank);
    EXPECT_EQ(report.data_index, rank % 2);
    EXPECT_EQ(report.stages, std::vector{first ? 0 : 1});
    EXPECT_EQ(report.train_calls, 2);
    EXPECT_EQ(report.eval_calls, 1);
    // The first stage sends activations, of the evaluation too; the last one gradients.
    EXPECT_EQ(report.messages, first ? 2 * 4 + 2 : 2 * 4);
    EXPECT_EQ(report.message_bytes, report.messages * 3 * kRow);
    // Four layers of a matrix and a bias, each beginning at a multiple of 256 bytes.
    EXPECT_EQ(report.reduced_bytes, 2 * 4 * (kWidth * kRow + 256));
    EXPECT_GT(report.seconds, 0.0);
    EXPECT_LE(report.idle_seconds, report.seconds);
    EXPECT_EQ(report.buffer_bytes, std::nullopt);
    EXPECT_EQ(report.planned_bytes, std::nullopt);
    EXPECT_EQ(report.planned_buffer_bytes, std::nullopt);
  }
}

TEST(RankReports, OfRanksWithSeveralStages) {
  const auto with = [](const std::string& schedule) {
    return reports_of({.pipe = 2,
                       .gas = 4,
                       .more = R"({"pipeline": {"chunks": 2, "schedule": ")" + schedule + "\"}}"},
                      /*train=*/1);
  };
  // Stages 0 and 2, 1 and 3. Three edges between ranks: rank 0 sends two activations and a
  // gradient of each micro batch, rank 1 one and two.
  const auto loop = with("interleaved_1f1b");
  EXPECT_EQ(loop[0].stages, (std::vector{0, 2}));
  EXPECT_EQ(loop[1].stages, (std::vector{1, 3}));
  EXPECT_EQ(loop[0].messages, 3 * 4 + 2 * 2);
  EXPECT_EQ(loop[1].messages, 3 * 4 + 2);
  // Stages 0 and 3, 1 and 2: what goes from stage 1 to stage 2 stays where it is.
  const auto v = with("zbv");
  EXPECT_EQ(v[0].stages, (std::vector{0, 3}));
  EXPECT_EQ(v[1].stages, (std::vector{1, 2}));
  for (const RankReport& report : v) {
    EXPECT_EQ(report.messages, 2 * 4 + 2);
    EXPECT_EQ(report.message_bytes, report.messages * kRow);
    EXPECT_EQ(report.reduced_bytes, 0) << "there is one replica";
  }
}

TEST(RankReports, CountTheExchangeOfTiedGradients) {
  for (const RankReport& report : reports_of({.pipe = 2}, /*train=*/3, /*ties=*/true)) {
    EXPECT_EQ(report.reduced_bytes, 3 * 32 * kRow);  // the embedding's 32 rows
  }
}

TEST(RankReports, OneRankAloneNeverWaits) {
  const RankReport report = reports_of({.gas = 3}, 3)[0];
  EXPECT_EQ(report.messages, 0);
  EXPECT_EQ(report.reduced_bytes, 0);
#ifndef PENSTOCK_PERTURB  // where a vote of one rank is complete only some time later
  EXPECT_EQ(report.idle_seconds, 0.0);
#endif
}

// The first stage sleeps once it is known that the second one has nothing else to do.
TEST(RankReports, IdleIsTheTimeThatOthersTook) {
  constexpr std::chrono::milliseconds kSleep{200};
  std::atomic<bool> waiting = false;
  const RunSpec run{.pipe = 2, .gas = 2};
  const auto reports = on_ranks<std::vector<RankReport>>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64));
    bool slept = false;
    engine.replace_handler(Opcode::kForwardPass, [&](const auto&, const auto& built_in) {
      if (world.rank() == 0 && !std::exchange(slept, true)) {
        while (!waiting) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(kSleep);
      }
      built_in();
    });
    engine.replace_handler(Opcode::kRecvActivation, [&](const auto&, const auto& built_in) {
      waiting = true;
      built_in();
    });
    engine.train_batch();
    std::vector<RankReport> result = engine.rank_reports();
    engine.close();
    return result;
  })[0];
  EXPECT_GE(reports[0].seconds, 0.2);
  // Half of it, should this thread get no core when it begins to wait.
  EXPECT_GE(reports[1].idle_seconds, 0.1);
  EXPECT_LE(reports[1].idle_seconds, reports[1].seconds);
}

// The first `tokens` tokens of each sample.
model::MicroBatch cropped(model::MicroBatch data, std::int64_t tokens) {
  const auto crop = [&](tensor::Tensor& tensor) {
    const std::int64_t rows = tensor.dim(0), whole = tensor.dim(1);
    const tensor::Tensor result =
        tensor::Tensor::empty(tensor::make_cpu_allocator(), {rows, tokens}, tensor.dtype());
    for (std::int64_t row = 0; row < rows; ++row) {
      std::memcpy(result.data<std::int64_t>() + row * tokens,
                  tensor.data<std::int64_t>() + row * whole,
                  static_cast<std::size_t>(tokens) * sizeof(std::int64_t));
    }
    tensor = result;
  };
  crop(data.inputs[0]);
  crop(data.labels[0]);
  return data;
}

TEST(RankReports, HoldMemoryAgainstThePlanForTheLargestMicroBatch) {
  const RunSpec run{.pipe = 3, .data = 2, .micro = 2, .gas = 5};
  on_ranks<int>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, tie6(), config_of(run), token_samples(256));
    EXPECT_EQ(engine.rank_reports({.plan = true})[0].planned_bytes, std::nullopt)
        << "nothing was trained";
    engine.set_batch_fn([](model::MicroBatch data, const engine::MicroBatchPlace& place) {
      return place.step == 2 ? data : cropped(std::move(data), 3);
    });
    engine.measure_memory(engine::SendTiming::kLastLegalPoint);
    for (int step = 0; step < 3; ++step) engine.train_batch();
    const auto reports = engine.rank_reports({.plan = true});
    const RankReport& mine = reports[static_cast<std::size_t>(world.rank())];
    const engine::RankMemory plan = engine.planned_memory(take(*token_samples(2), 2));
    EXPECT_EQ(mine.planned_bytes, plan.total());
    EXPECT_EQ(mine.planned_buffer_bytes, plan.pipe_buffers.total());
    EXPECT_EQ(mine.buffer_bytes, plan.pipe_buffers.total());
    EXPECT_EQ(mine.peak_bytes, engine.memory().peak_bytes());
    EXPECT_GT(mine.peak_bytes, plan.weights + plan.gradients);
    engine.close();
    return 0;
  });
}

TEST(RankReports, AreATable) {
  std::vector<RankReport> ranks{{.rank = 0,
                                 .data_index = 0,
                                 .model_index = 0,
                                 .stages = {0, 3},
                                 .train_calls = 2,
                                 .eval_calls = 0,
                                 .seconds = 2.0,
                                 .idle_seconds = 0.5,
                                 .messages = 1200,
                                 .message_bytes = 1234567,
                                 .reduced_bytes = 0,
                                 .peak_bytes = 4096,
                                 .buffer_bytes = 1024,
                                 .planned_bytes = 5000,
                                 .planned_buffer_bytes = 2048,
                                 .device = {},
                                 .graphs = {}},
                                RankReport()};
  ranks[1].rank = 1;
  ranks[1].model_index = 1;
  ranks[1].stages = {1, 2};
  EXPECT_EQ(engine::to_text(ranks),
            "rank  stages  replica  model  seconds    idle  messages  bytes sent  bytes reduced  "
            "buffers  "
            "planned  all tensors  planned\n"
            "   0     0,3        0      0    2.000  25.0 %     1,200   1,234,567              0    "
            "1,024  "
            "  2,048        4,096    5,000\n"
            "   1     1,2        0      1    0.000   0.0 %         0           0              0    "
            "    -  "
            "      -            0        -\n");
  ranks[1].device = engine::DeviceBytes{.allocated = 1000, .cached = 20, .peak = 3000};
  const std::string text = engine::to_text(ranks);
  EXPECT_NE(text.find("planned  device  cached   peak\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  -   1,000      20  3,000\n"), std::string::npos) << text;
  ranks[0].graphs = engine::GraphReport{.bytes = 512, .captured = 4, .replayed = 20, .plain = 6};
  const std::string more = engine::to_text(ranks);
  EXPECT_NE(more.find("peak  graphs  replayed  not\n"), std::string::npos) << more;
  EXPECT_NE(more.find("  0     512        20    6\n"), std::string::npos) << more;
}

}  // namespace
}  // namespace penstock::testing
