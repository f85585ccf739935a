// penstock-bench as a person runs it, where there is no device.
#include <gtest/gtest.h>

#include "tensor/cuda/cuda.h"
#include "tests/tools/run_tool.h"

namespace penstock::tools {
namespace {

TEST(PenstockBench, SaysThatThereIsNoDevice) {
  if (tensor::cuda::device_count() > 0) GTEST_SKIP() << "this machine has a CUDA device";
  const ToolResult result = run_tool(PENSTOCK_BENCH, "gpu");
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(
      result.err,
      "penstock-bench: gpu: this process sees no CUDA device, so nothing was measured; see what "
      "nvidia-smi lists, what CUDA_VISIBLE_DEVICES hides, and whether the build has "
      "PENSTOCK_CUDA\n");
}

TEST(PenstockBench, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(run_tool(PENSTOCK_BENCH, "gpu --parts 7B").err,
            "penstock-bench: gpu has no part '7B'; expected one of kernels 124M 1.5B\n");
  EXPECT_EQ(run_tool(PENSTOCK_BENCH, "gpu --parts 7B").status, 2);
  EXPECT_EQ(run_tool(PENSTOCK_BENCH, "gpu --rows 0").status, 2);
  EXPECT_EQ(run_tool(PENSTOCK_BENCH, "gpus").status, 2);
}

}  // namespace
}  // namespace penstock::tools
