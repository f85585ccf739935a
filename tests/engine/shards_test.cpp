// Which regions of a logical tensor the elements of a shard are, and back.
#include "engine/shards.h"

#include <numeric>

#include <gtest/gtest.h>

#include "comm/world.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {
namespace {

using model::ModelAxis;
using model::Shard;
using model::Split;
using tensor::Shape;
using tensor::Tensor;

// Element i of the whole tensor is i.
Tensor own_part(const tensor::Context& context, const Shape& whole, const Shard& shard) {
  std::vector<float> values;
  std::int64_t inner = 1;
  for (int axis = shard.axis + 1; axis < whole.rank(); ++axis) inner *= whole.dim(axis);
  for (std::int64_t i = 0; i < whole.numel(); ++i) {
    const std::int64_t at = i / inner % whole.dim(std::max(0, shard.axis));
    bool mine = shard.is_everything();
    for (const Shard::Range& range : shard.ranges) {
      mine = mine || (at >= range.whole && at < range.whole + range.count);
    }
    if (mine) values.push_back(static_cast<float>(i));
  }
  return Tensor::from<float>(context, shard.shape, values);
}

// Each of `ranks` saves its part in pieces that begin at multiples of `step` elements, as a sharded
// optimizer would; then `readers` ranks read their parts in other pieces.
void expect_round_trip(const Shape& whole, const Split& split, int ranks, int readers,
                       std::int64_t step) {
  const TemporaryFolder folder;
  const tensor::Context context(tensor::make_cpu_allocator());
  const auto for_each_range = [&](int size, std::int64_t length, const auto& visit) {
    for (int rank = 0; rank < size; ++rank) {
      const Shard shard = model::shard_of("w", whole, split, {.size = size, .rank = rank});
      if (shard.is_everything() && rank > 0) continue;
      const Tensor own = own_part(context, whole, shard);
      const Tensor flat = own.view({own.numel()});
      for (std::int64_t begin = 0; begin < own.numel(); begin += length) {
        visit(shard, flat, begin, std::min(begin + length, own.numel()));
      }
    }
  };
  comm::run_local(1, {}, [&](comm::World& world) {
    checkpoint::SaveRequest request;
    request.directory = folder.path();
    request.tag = "t";
    request.engine_json = "{}";
    request.files.push_back({checkpoint::model_states_file(0, 0), {}});
    for_each_range(
        ranks, step,
        [&](const Shard& shard, const Tensor& flat, std::int64_t begin, std::int64_t end) {
          const engine::ShardData from{whole, shard, flat.rows(begin, end), begin};
          for (checkpoint::Piece& piece : engine::pieces_of(context, "w", from)) {
            request.files[0].pieces.push_back(std::move(piece));
          }
        });
    checkpoint::save(world, request);
    const auto reader = checkpoint::Reader::open(world, folder.path());
    for_each_range(
        readers, step + 2,
        [&](const Shard& shard, const Tensor& flat, std::int64_t begin, std::int64_t end) {
          const Tensor read = Tensor::zeros(context, {end - begin}, tensor::DType::kF32);
          engine::read_shard(context, reader, "w", {whole, shard, read, begin});
          for (std::int64_t i = begin; i < end; ++i) {
            ASSERT_EQ(read.data<float>()[i - begin], flat.data<float>()[i]);
          }
        });
  });
}

TEST(Shards, AnyRangeOfAnyPartComesBack) {
  const Split heads{.blocks = {{4, 2}, {4, 2}, {4, 2}}, .axis = 1};
  const Split rows = Split::along(0, 11, Split::Rest::kUneven);
  for (const std::int64_t step : {5, 7, 1000}) {
    expect_round_trip({3, 24}, heads, 2, 4, step);
    expect_round_trip({3, 24}, heads, 4, 1, step);
    expect_round_trip({11, 5}, rows, 3, 2, step);
    expect_round_trip({6, 4}, {}, 2, 3, step);
  }
}

}  // namespace
}  // namespace penstock::testing
