#include <algorithm>
#include <stdexcept>

#include "tensor/cuda/cuda.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/cuda_emulation/planted/scenario.h"
#include "tests/support/tensors.h"
#include "tests/tensor/cuda/op_case.h"

namespace penstock::cuda_emulation::planted {

namespace {

using namespace penstock::testing;

std::string compare_with_cpu(const OpCase& op, const Run& run) {
  std::string wrong;
  for (const OpForm& form : forms_of(op)) {
    tensor::Context cpu = cpu_context();
    const std::vector<OpResult> wanted = run_op(op, form, cpu);
    start({.seed = run.seed, .patience = run.patience});
    tensor::Context device(tensor::cuda::make_cuda_allocator({}));
    wrong += compare_results(op, run_op(op, form, device), wanted);
  }
  return wrong;
}

}  // namespace

Scenario operation(const std::string& name) {
  const std::vector<OpCase> cases = all_cases();
  const auto found = std::ranges::find(cases, name, &OpCase::name);
  if (found == cases.end()) throw std::invalid_argument("no operation is called " + name);
  return {name, [op = *found](const Run& run) { return compare_with_cpu(op, run); }};
}

}  // namespace penstock::cuda_emulation::planted
