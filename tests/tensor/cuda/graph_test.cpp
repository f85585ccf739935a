// Graphs: captured work runs again on what lies where it lay, and what cannot be done again is told
// apart.
#include "tensor/cuda/graph.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/queue.h"
#include "tensor/error.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/elementwise.h"
#include "tensor/transfer.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::testing {
namespace {

using tensor::Allocator;
using tensor::Context;
using tensor::DType;
using tensor::Tensor;
using ::testing::HasSubstr;
namespace cuda = tensor::cuda;

class CudaGraphs : public ::testing::Test {
 protected:
  CudaGraphs() {
    cuda_emulation::start();
    context_ = std::make_unique<Context>(cuda::make_cuda_allocator({}));
  }
  ~CudaGraphs() override {
    context_.reset();
    EXPECT_EQ(cuda_emulation::fault(), "");
    EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
  }

  Context& context() { return *context_; }
  Allocator& memory() { return *context_->allocator; }
  Tensor of(std::vector<float> values) {
    return Tensor::from<float>(context(), {std::ssize(values)}, values);
  }
  static std::vector<float> read(const Tensor& x) {
    std::vector<float> values(static_cast<std::size_t>(x.numel()));
    x.storage()->allocator().download(std::as_writable_bytes(std::span(values)), x.raw());
    return values;
  }
  // Two operations, so that something is allocated in between.
  Tensor twice_product(const Tensor& a, const Tensor& b) {
    const Tensor product = mul(context(), a, b);
    return add(context(), product, product);
  }

 private:
  std::unique_ptr<Context> context_;
};

TEST_F(CudaGraphs, DoAgainWhatWasCapturedWithWhatLiesThereNow) {
  const Tensor a = of({1, 2, 3}), b = of({4, 5, 6});
  EXPECT_EQ(cuda::run_watched(memory(), [&] { twice_product(a, b); }), "");
  Tensor out;
  const auto graph = cuda::capture(memory(), [&] { out = twice_product(a, b); });
  graph->launch();
  EXPECT_EQ(read(out), std::vector<float>({8, 20, 36}));
  memory().copy(a.raw(), b.raw(), a.nbytes());
  graph->launch();
  EXPECT_EQ(read(out), std::vector<float>({32, 50, 72}));
  EXPECT_EQ(cuda_emulation::counters().graph_captures, 2);  // one for trial
  EXPECT_EQ(cuda_emulation::counters().graph_launches, 2);
}

TEST_F(CudaGraphs, NothingIsDoneWhileTheyAreCaptured) {
  Tensor a = of({1, 2, 3});
  const auto graph = cuda::capture(memory(), [&] { add_into(context(), a, a, false); });
  EXPECT_EQ(read(a), std::vector<float>({1, 2, 3}));
  graph->launch();
  EXPECT_EQ(read(a), std::vector<float>({2, 4, 6}));
}

// What the first leaves behind for others, and what only one graph needs while it runs.
TEST_F(CudaGraphs, ShareOnlyTheMemoryOfWhatNoneOfThemLeaves) {
  const Tensor a = of({1, 2});
  Tensor b = of({3, 4});
  EXPECT_EQ(cuda::graph_bytes(memory()), 0);
  std::vector<Tensor> left(4);
  std::vector<std::unique_ptr<cuda::Graph>> graphs;
  for (Tensor& out : left) {
    graphs.push_back(cuda::capture(memory(), [&] {
      out = {};
      out = twice_product(a, b);
    }));
    // Each has its own block; all have one more for the product, and another for trials of later.
    EXPECT_EQ(cuda::graph_bytes(memory()),
              (std::ssize(graphs) + (graphs.size() > 1 ? 2 : 1)) * 512);
    EXPECT_TRUE(cuda::is_graph_memory(memory(), out.raw()));
  }
  EXPECT_FALSE(cuda::is_graph_memory(memory(), a.raw()));
  for (std::size_t i = 0; i < left.size(); ++i) {
    memory().copy(a.raw(), b.raw(), a.nbytes());
    graphs[3 - i]->launch();
    add_into(context(), b, a, false);
  }
  EXPECT_EQ(read(left[3]), std::vector<float>({18, 32}));
  EXPECT_EQ(read(left[2]), std::vector<float>({72, 128}));
  EXPECT_EQ(read(left[1]), std::vector<float>({288, 512}));
  EXPECT_EQ(read(left[0]), std::vector<float>({1152, 2048}));
}

TEST_F(CudaGraphs, RefuseWorkThatAllocatesOtherwiseTheSecondTime) {
  const Tensor a = of({1, 2});
  int runs = 0;
  EXPECT_THAT(message<tensor::InternalError>([&] {
                cuda::capture(memory(), [&] {
                  if (++runs == 2) twice_product(a, a);
                });
              }),
              HasSubstr("captured a second time"));
}

TEST_F(CudaGraphs, TensorsOfTheirMemoryAreOrdinaryBesides) {
  Tensor kept;
  {
    const cuda::ForGraphs scope(memory());
    kept = of({1, 2});
  }
  EXPECT_TRUE(cuda::is_graph_memory(memory(), kept.raw()));
  EXPECT_FALSE(cuda::is_graph_memory(memory(), of({1}).raw()));
  EXPECT_EQ(read(kept), std::vector<float>({1, 2}));
}

TEST_F(CudaGraphs, WatchedWorkTellsWhatCannotBeDoneAgain) {
  const Tensor a = of({1, 2});
  const std::vector<std::int64_t> ids = {3, 4};
  EXPECT_EQ(cuda::run_watched(memory(), [&] { of({3}); }), "copies from the host");
  EXPECT_EQ(cuda::run_watched(memory(), [&] { read(a); }), "copies to the host");
  EXPECT_EQ(cuda::run_watched(memory(), [&] { dropout(context(), a, 0.5, ids); }),
            "copies from the host");
  EXPECT_EQ(cuda::run_watched(memory(), [&] { twice_product(a, a); }), "");
}

TEST_F(CudaGraphs, RefuseWhatCannotBeDoneAgain) {
  const Tensor a = of({1, 2});
  EXPECT_THAT(message<tensor::Unsupported>([&] { cuda::capture(memory(), [&] { read(a); }); }),
              HasSubstr("copies to the host"));
  EXPECT_THAT(message<tensor::Unsupported>([&] { cuda::capture(memory(), [&] { of({1}); }); }),
              HasSubstr("copies from the host"));
  EXPECT_THAT(
      message<tensor::Unsupported>([&] { cuda::capture(memory(), [&] { memory().fence(); }); }),
      HasSubstr("to be waited for"));
  EXPECT_EQ(read(a), std::vector<float>({1, 2}));  // the stream is as it was
}

TEST_F(CudaGraphs, SayWhenTheDriverRefusesToCapture) {
  const Tensor a = of({1, 2});
  const auto wait_behind_our_back = [&] {
    twice_product(a, a);
    cudaStreamSynchronize(cuda::queue_of(context()).stream());
  };
  EXPECT_THAT(message<tensor::DeviceError>([&] { cuda::capture(memory(), wait_behind_our_back); }),
              HasSubstr("[graphs] a CUDA graph could not be captured: "));
  cudaGetLastError();
  EXPECT_EQ(read(twice_product(a, a)), std::vector<float>({2, 8}));
}

TEST_F(CudaGraphs, RefuseMemoryThatIsReleasedUnderThem) {
  Tensor a = of({1, 2});
  EXPECT_THAT(message<tensor::InternalError>([&] {
                cuda::capture(memory(), [&] {
                  add_into(context(), a, a, false);
                  a = {};
                });
              }),
              HasSubstr("released while it was captured"));
}

TEST_F(CudaGraphs, OtherThreadsReleaseMemoryMeanwhile) {
  const Tensor a = of({1, 2});
  Tensor other = of({3, 4});
  std::thread thread;
  const auto graph = cuda::capture(memory(), [&] {
    if (!thread.joinable())
      thread = std::thread([released = std::move(other)]() mutable { released = {}; });
    twice_product(a, a);
  });
  thread.join();
  graph->launch();
}

}  // namespace
}  // namespace penstock::testing
