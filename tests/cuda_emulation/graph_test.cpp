// Emulated CUDA graphs: what was captured runs when it is launched, and again.
#include <vector>

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/cuda/launch.h"
#include "tests/cuda_emulation/emulated_test.h"

namespace penstock::cuda_emulation {
namespace {

using Graphs = EmulatedTest;
using tensor::cuda::independent;
using tensor::cuda::launch;

__global__ void add_to(float* to, float value) {
  *to += value;
}

// A graph of two kernels that add 1 and 2 to the block.
cudaGraphExec_t capture(cudaStream_t stream, float* block) {
  expect_success(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch(independent(add_to), 1, 1, 0, stream, block, 1.0f);
  launch(independent(add_to), 1, 1, 0, stream, block, 2.0f);
  cudaGraph_t graph = nullptr;
  expect_success(cudaStreamEndCapture(stream, &graph));
  std::size_t nodes = 0;
  expect_success(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 2u);
  cudaGraphExec_t executable = nullptr;
  expect_success(cudaGraphInstantiate(&executable, graph));
  expect_success(cudaGraphDestroy(graph));
  return executable;
}

TEST_F(Graphs, RunWhenTheyAreLaunched) {
  cudaStream_t stream = make_stream();
  float* block = make_block(1, stream);
  write(block, {0.0f}, stream);
  cudaGraphExec_t graph = capture(stream, block);
  EXPECT_EQ(read(block, 1, stream)[0], 0);
  expect_success(cudaGraphLaunch(graph, stream));
  expect_success(cudaGraphLaunch(graph, stream));
  EXPECT_EQ(read(block, 1, stream)[0], 6);
  EXPECT_EQ(counters().graph_launches, 2);
  expect_success(cudaGraphExecDestroy(graph));
  cudaFreeAsync(block, stream);
  cudaStreamDestroy(stream);
}

TEST_F(Graphs, NeedTheirMemoryWhenLaunched) {
  cudaStream_t stream = make_stream();
  float* block = make_block(1, stream);
  cudaGraphExec_t graph = capture(stream, block);
  cudaFreeAsync(block, stream);
  EXPECT_NE(cudaGraphLaunch(graph, stream), cudaSuccess);
  EXPECT_THAT(planted_fault(), testing::HasSubstr("had released"));
  cudaGraphExecDestroy(graph);
}

TEST_F(Graphs, RefuseWaitsAndAllocations) {
  cudaStream_t stream = make_stream();
  expect_success(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  expect_success(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  expect_success(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  expect_success(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  void* block = nullptr;
  EXPECT_EQ(cudaMallocAsync(&block, 4, stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace penstock::cuda_emulation
