#include "engine/batch_config.h"

#include "config_support.h"

namespace penstock::engine {
namespace {

using test::error_of;
using Value = std::optional<std::int64_t>;

// One replica per data-parallel rank, no pipe.
DataParallelSize replicas(std::int64_t size) {
  return data_parallel_size(size, 1, 1);
}

TEST(BatchConfig, GoldenRowsAgree) {
  std::size_t resolved = 0;
  std::size_t refused = 0;
  const auto value = [](const nlohmann::json& json) {
    return json.is_null() ? Value() : Value(json);
  };
  for (const auto& row : test::golden_rows("deepspeed_batch_config.jsonl")) {
    SCOPED_TRACE(row.dump());
    const auto& in = row["in"];
    const BatchConfig batch = {value(in[0]), value(in[1]), value(in[2])};
    const DataParallelSize size = replicas(row["dp_world_size"]);
    if (row.contains("error")) {
      EXPECT_THROW(resolve_batch(batch, size), ConfigError);
      ++refused;
    } else {
      const auto& out = row["out"];
      EXPECT_EQ(resolve_batch(batch, size), (BatchTriple{out[0], out[1], out[2]}));
      ++resolved;
    }
  }
  EXPECT_EQ(resolved, 147u);
  EXPECT_EQ(refused, 1109u);
}

TEST(BatchConfig, WrongProductNamesKeysValuesReplicasAndProduct) {
  const std::string one = error_of([] { resolve_batch({32, 4, 4}, data_parallel_size(1, 1, 1)); });
  EXPECT_HAS(one, "train_batch_size 32");
  EXPECT_HAS(one, "train_micro_batch_size_per_gpu 4");
  EXPECT_HAS(one, "gradient_accumulation_steps 4");
  EXPECT_HAS(one, "data-parallel size 1 (world 1 / (PP 1 × TP 1) = 1)");
  EXPECT_HAS(one, "4×4×1 = 16, expected train_batch_size 32");

  const std::string two = error_of([] { resolve_batch({8, 2, 1}, data_parallel_size(4, 2, 1)); });
  EXPECT_HAS(two, "data-parallel size 2 (world 4 / (PP 2 × TP 1) = 2)");
  EXPECT_HAS(two, "2×1×2 = 4, expected train_batch_size 8");
}

TEST(BatchConfig, CompletesWhatIsLeftOut) {
  const auto resolved = [](Value total, Value micro, Value steps) {
    return resolve_batch({total, micro, steps}, replicas(2));
  };
  EXPECT_EQ(resolved(32, 4, {}), (BatchTriple{32, 4, 4}));
  EXPECT_EQ(resolved(32, {}, 4), (BatchTriple{32, 4, 4}));
  EXPECT_EQ(resolved({}, 4, 4), (BatchTriple{32, 4, 4}));
  EXPECT_EQ(resolved(32, {}, {}), (BatchTriple{32, 16, 1}));
  EXPECT_EQ(resolved({}, 4, {}), (BatchTriple{8, 4, 1}));
}

TEST(BatchConfig, RefusesWhatCannotBeCompleted) {
  const auto refused = [](Value total, Value micro, Value steps) {
    return error_of([&] { resolve_batch({total, micro, steps}, replicas(2)); });
  };
  EXPECT_HAS(refused({}, {}, 4), "give train_batch_size or train_micro_batch_size_per_gpu");
  EXPECT_HAS(refused({}, {}, {}), "gradient_accumulation_steps (not given)");
  EXPECT_HAS(refused(30, 4, {}), "30 is not a multiple of 4×2 = 8");
  EXPECT_HAS(refused(2, 4, {}), "2 is not a multiple of 4×2 = 8");
  EXPECT_HAS(refused(50, 4, {}), "data-parallel size 2");
  EXPECT_HAS(refused(3, {}, {}), "3 is not a multiple of 1×2 = 2");
  EXPECT_HAS(refused(0, 4, {}), "each must be at least 1");
  EXPECT_HAS(refused(8, 0, {}), "each must be at least 1");
  EXPECT_HAS(refused(8, {}, -1), "each must be at least 1");
  EXPECT_HAS(refused({}, INT64_MAX, 1), "does not fit into 64 bits");
  // 2^32 + 1 must not wrap round to one.
  EXPECT_HAS(refused(8589934594, 1, {}), "4294967297 accumulation steps, expected at most 1000000");
  EXPECT_HAS(refused(8589934594, {}, 4294967297), "expected at most 1000000");
  EXPECT_HAS(refused({}, 1, 1000001), "expected at most 1000000");
}

TEST(BatchConfig, ReplicasComeFromWorldPipeAndModel) {
  const DataParallelSize size = data_parallel_size(12, 3, 2);
  EXPECT_EQ(size.size, 2);
  EXPECT_EQ(size.origin, "world 12 / (PP 3 × TP 2) = 2");
  EXPECT_HAS(error_of([] { data_parallel_size(3, 2, 1); }),
             "world 3 / (PP 2 × TP 1) is no whole number of replicas");
  EXPECT_HAS(error_of([] { data_parallel_size(1, 2, 1); }), "is no whole number");
}

}  // namespace
}  // namespace penstock::engine
