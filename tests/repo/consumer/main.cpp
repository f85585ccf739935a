// Makes a tensor through the installed package.
#include <array>

#include "tensor/allocator.h"
#include "tensor/context.h"
#include "tensor/tensor.h"

int main() {
  using namespace penstock::tensor;
  const Context context(make_cpu_allocator());
  const std::array<float, 2> values = {1.0F, 2.0F};
  const Tensor x = Tensor::from<float>(context, {2}, values);
  return x.span<float>()[1] == 2.0F && context.allocator->counters()->live_bytes() > 0 ? 0 : 1;
}
