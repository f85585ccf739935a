// Tests on the machine's own CUDA devices. Without one nothing runs, and the status says so.
#include <iostream>

#include <gtest/gtest.h>

#include "tensor/cuda/cuda.h"

namespace {
constexpr int kSkipped = 77;  // as CTest and tools/gpu_check know
}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!testing::GTEST_FLAG(list_tests) && penstock::tensor::cuda::device_count() == 0) {
    std::cout << "skipped: this process sees no CUDA device\n";
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
