// What was saved in any layout is read in any other.
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "comm/world.h"
#include "tensor/half.h"
#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

using penstock::testing::MemoryFileSystem;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

const Shape kShape{6, 4, 10};

std::vector<float> counted(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

// The region's elements of a tensor that counts from 1, picked one by one.
std::vector<float> picked(const Region& region) {
  std::int64_t inner = 1;
  for (int axis = region.axis + 1; axis < kShape.rank(); ++axis) inner *= kShape[axis];
  std::vector<float> slice;
  for (std::int64_t i = 0; i < kShape.numel(); ++i) {
    const std::int64_t index = region.axis < 0 ? 0 : i / inner % kShape[region.axis];
    if (region.axis < 0 || (index >= region.axis_begin && index < region.axis_end)) {
      slice.push_back(static_cast<float>(i + 1));
    }
  }
  return {slice.begin() + region.begin, slice.begin() + region.end};
}

struct Layout {
  const char* name;
  std::vector<std::vector<Region>> of_ranks;
};

std::vector<Layout> layouts() {
  const Region all = Region::whole(kShape);
  const auto shard = [](int axis, int index, int count) {
    return Region::shard(kShape, axis, index, count);
  };
  const Region uneven0 = Region::slice(kShape, 2, 0, 7);
  const Region uneven1 = Region::slice(kShape, 2, 7, 10);
  return {{"whole, by rank 1", {{}, {all}, {}}},
          {"rows", {{shard(0, 0, 3)}, {shard(0, 2, 3)}, {shard(0, 1, 3)}}},
          {"middle axis", {{shard(1, 1, 2)}, {}, {shard(1, 0, 2)}}},
          {"last axis",
           {{shard(2, 0, 5), shard(2, 3, 5)}, {shard(2, 1, 5), shard(2, 4, 5)}, {shard(2, 2, 5)}}},
          {"ranges, one empty",
           {{all.elements(0, 17)}, {all.elements(17, 240)}, {all.elements(240, 240)}}},
          {"ranges of uneven slices",
           {{uneven0.elements(0, 100), uneven1.elements(50, 72)},
            {uneven0.elements(100, 168)},
            {uneven1.elements(0, 50)}}}};
}

void save_layout(FileSystem& files, const Layout& layout) {
  run_ranks(static_cast<int>(layout.of_ranks.size()), [&](comm::World& world) {
    const tensor::Context context = cpu_context();
    SaveRequest request;
    request.directory = "/ckpt";
    request.tag = "t";
    request.engine_json = "{}";
    FilePlan plan{model_states_file(0, world.rank()), {}};
    for (const Region& region : layout.of_ranks[static_cast<std::size_t>(world.rank())]) {
      plan.pieces.push_back({"w", kShape, region, make(context, {region.numel()}, picked(region))});
    }
    if (!plan.pieces.empty()) request.files.push_back(plan);
    save(world, request, files);
  });
}

TEST(Layouts, EachIsReadAsEveryOther) {
  for (const Layout& saved : layouts()) {
    SCOPED_TRACE(saved.name);
    MemoryFileSystem files;
    save_layout(files, saved);
    run_ranks(1, [&](comm::World& world) {
      const Reader reader = Reader::open(world, "/ckpt", std::nullopt, files);
      const tensor::Context context = cpu_context();
      const Tensor all = Tensor::empty(context, kShape, DType::kF32);
      reader.read("w", all);
      EXPECT_EQ(values<float>(all), counted(kShape.numel()));
      for (const Layout& wanted : layouts()) {
        for (const std::vector<Region>& regions : wanted.of_ranks) {
          for (const Region& region : regions) {
            const Tensor part = Tensor::empty(context, {region.numel()}, DType::kF32);
            reader.read("w", region, part);
            EXPECT_EQ(values<float>(part), picked(region)) << region.to_string(kShape);
          }
        }
      }
    });
  }
}

TEST(Layouts, AnUncutTensorLiesInTheFileUnderItsOwnNameAndShape) {
  MemoryFileSystem files;
  save_layout(files, layouts()[0]);
  const SafetensorsFile file =
      SafetensorsFile::open("/ckpt/t/layer_00-model_01-model_states.safetensors", files);
  EXPECT_EQ(file.at("w").shape, kShape);
}

TEST(Layouts, LargeTensorsAreReadInWindowsAndInOneGo) {
  // Rows of 8 bytes from slices of 4 MB, and runs of more than a window.
  const Shape shape{1 << 18, 4};
  const std::vector<float> numbers = counted(shape.numel());
  MemoryFileSystem files;
  run_ranks(2, [&](comm::World& world) {
    const tensor::Context context = cpu_context();
    const Region half = Region::shard(shape, 1, world.rank(), 2);
    const Tensor data = Tensor::empty(context, half.slice_shape(shape), DType::kF32);
    for (std::int64_t i = 0; i < data.numel(); ++i) {
      data.data<float>()[i] =
          numbers[static_cast<std::size_t>(i / 2 * 4 + 2 * world.rank() + i % 2)];
    }
    SaveRequest request{"/ckpt", "t", {}, "{}"};
    request.files.push_back({model_states_file(0, world.rank()), {{"w", shape, half, data}}});
    save(world, request, files);
    const Reader reader = Reader::open(world, "/ckpt", "t", files);
    const Tensor all = Tensor::empty(context, shape, DType::kF32);
    reader.read("w", all);
    EXPECT_EQ(values<float>(all), numbers);
    const Tensor again = Tensor::empty(context, half.slice_shape(shape), DType::kF32);
    reader.read("w", half, again);
    EXPECT_EQ(values<float>(again), values<float>(data));
  });
}

TEST(Layouts, TypesAreKeptUnlessACastIsAskedFor) {
  MemoryFileSystem files;
  run_ranks(1, [&](comm::World& world) {
    tensor::Context context = cpu_context();
    const Tensor numbers = penstock::testing::uniform(context, {1000, 300}, DType::kF32, -9, 9);
    SaveRequest request{"/ckpt", "t", {}, "{}"};
    request.files.push_back(
        {model_states_file(0, 0),
         {Piece::whole("w", numbers), Piece::whole("n", make<std::int64_t>(context, {1}, {5}))}});
    save(world, request, files);
    const Reader reader = Reader::open(world, "/ckpt", "t", files);
    const Tensor narrow = Tensor::empty(context, {1000, 300}, DType::kBF16);
    const std::string error = message<FileError>([&] { reader.read("w", narrow); });
    EXPECT_NE(error.find("tensor \"w\" is stored as f32; expected bf16"), std::string::npos)
        << error;
    reader.read("w", narrow, Cast::kFloating);
    for (std::int64_t i = 0; i < narrow.numel(); ++i) {
      ASSERT_EQ(narrow.data<tensor::BF16>()[i], tensor::to_bf16(numbers.data<float>()[i]));
    }
    EXPECT_THROW(reader.read("n", Tensor::empty(context, {1}, DType::kF32), Cast::kFloating),
                 FileError);
  });
}

TEST(Layouts, WrongNamesShapesAndRegionsAreErrors) {
  MemoryFileSystem files;
  save_layout(files, layouts()[0]);
  run_ranks(1, [&](comm::World& world) {
    const Reader reader = Reader::open(world, "/ckpt", std::nullopt, files);
    const tensor::Context context = cpu_context();
    EXPECT_TRUE(reader.contains("w"));
    EXPECT_FALSE(reader.contains("v"));
    EXPECT_EQ(reader.info("w").shape, kShape);
    EXPECT_NE(message<FileError>([&] { reader.info("v"); }).find("holds no tensor \"v\""),
              std::string::npos);
    const std::string error = message<FileError>([&] {
      reader.read("w", Tensor::empty(context, {6, 4, 11}, DType::kF32));
    });
    EXPECT_NE(error.find("tensor \"w\" is [6, 4, 10]; expected [6, 4, 11]"), std::string::npos)
        << error;
    const Tensor three = Tensor::empty(context, {3}, DType::kF32);
    EXPECT_THROW(reader.read("w", Region::whole(kShape).elements(0, 4), three),
                 tensor::InvalidArgument);
    EXPECT_THROW(reader.read("w", Region::whole({500}).elements(300, 303), three),
                 tensor::InvalidArgument);
  });
}

}  // namespace
}  // namespace penstock::checkpoint::testing
