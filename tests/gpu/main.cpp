// Tests on the machine's own CUDA devices. Without one nothing runs, and the status says so.
#include <cstdlib>
#include <iostream>
#include <utility>

#include <gtest/gtest.h>

#include "tensor/cuda/cuda.h"

namespace {
constexpr int kSkipped = 77;  // as CTest and tools/gpu_check know
}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // What comm::prepare_devices() sets, which not every test links, and has to set before the first
  // question to CUDA, which is below.
  for (const auto& [name, value] :
       {std::pair{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}, std::pair{"CUDA_MODULE_LOADING", "EAGER"},
        std::pair{"NCCL_P2P_DIRECT_DISABLE", "1"}}) {
    setenv(name, value, 0);
  }
  if (!testing::GTEST_FLAG(list_tests) && penstock::tensor::cuda::device_count() == 0) {
    std::cout << "skipped: this process sees no CUDA device\n";
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
