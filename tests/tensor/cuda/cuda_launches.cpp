// Runs all cases on an emulated device and prints, for each kernel that they start, the most bytes
// of shared memory that it was started with: "attend<BF16, 64>\t55296".
#include <iostream>

#include "tensor/cuda/cuda.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/tensor/cuda/op_case.h"

int main() {
  using namespace penstock;
  cuda_emulation::start();
  for (const testing::OpCase& op : testing::all_cases()) {
    for (const testing::OpForm& form : testing::forms_of(op)) {
      tensor::Context device(tensor::cuda::make_cuda_allocator({}));
      run_op(op, form, device);
    }
  }
  for (const auto& [kernel, bytes] : cuda_emulation::counters().shared_bytes) {
    std::cout << kernel << '\t' << bytes << '\n';
  }
}
