#include "tests/tensor/cuda/op_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "tensor/ops/cast.h"
#include "tensor/tape.h"

namespace penstock::testing {

namespace {

using tensor::Context;
using tensor::DType;
using tensor::GradSlot;
using tensor::Shape;
using tensor::Tape;
using tensor::Tensor;

// Numbers of the host, rounded to the dtype by the CPU.
Tensor host_numbers(const OpInput& input, DType dtype, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  Context host(tensor::make_cpu_allocator());
  const auto n = static_cast<std::size_t>(input.shape.numel());
  if (input.ids > 0) {
    std::uniform_int_distribution<std::int64_t> draw(0, input.ids - 1);
    std::vector<std::int64_t> ids(n);
    std::ranges::generate(ids, [&] { return draw(generator); });
    return Tensor::from(host, input.shape, std::span<const std::int64_t>(ids));
  }
  std::uniform_real_distribution<double> draw(input.low, input.high);
  std::vector<double> numbers(n);
  std::ranges::generate(numbers, [&] { return draw(generator); });
  return tensor::cast(host, Tensor::from(host, input.shape, std::span<const double>(numbers)),
                      dtype);
}

// In f64 where the form is exact.
Tensor in_form(const Tensor& numbers, const OpForm& form) {
  Context host(tensor::make_cpu_allocator());
  return form.exact && is_floating(numbers.dtype()) ? tensor::cast(host, numbers, DType::kF64)
                                                    : numbers;
}

// On the device, `offset` elements behind the start of a storage.
Tensor place(const Context& device, const Tensor& host, std::int64_t offset) {
  const Tensor whole = Tensor::empty(device, {offset + host.numel()}, host.dtype());
  const Tensor part = whole.rows(offset, offset + host.numel()).view(host.shape());
  device.allocator->upload(part.raw(), {host.raw(), host.nbytes()});
  return part;
}

Tensor to_host(const Tensor& x) {
  if (!x.defined()) return {};
  const Tensor host = Tensor::empty(tensor::make_cpu_allocator(), x.shape(), x.dtype());
  x.storage()->allocator().download({host.raw(), host.nbytes()}, x.raw());
  return host;
}

double unit(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF32:
      return 0x1p-24;
    default:
      return 0x1p-53;
  }
}

std::vector<double> doubles(const Tensor& x) {
  Context host(tensor::make_cpu_allocator());
  const Tensor wide = tensor::cast(host, x, DType::kF64);
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}

// The largest error relative to what an allowed error is a number of units of; not a number beside
// a number counts as infinite.
double worst_error(const Tensor& got, const Tensor& wanted) {
  const std::vector<double> numbers = doubles(got), exact = doubles(wanted);
  double squares = 0;
  std::size_t finite = 0;
  for (const double value : exact) {
    if (!std::isfinite(value)) continue;
    squares += value * value;
    ++finite;
  }
  const double typical = finite == 0 ? 0 : std::sqrt(squares / static_cast<double>(finite));
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const bool same = numbers[i] == exact[i] || (std::isnan(numbers[i]) && std::isnan(exact[i]));
    if (same) continue;
    const double error = std::fabs(numbers[i] - exact[i]) / (std::fabs(exact[i]) + typical);
    worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
  }
  return worst;
}

// Empty where the two can be compared.
std::string compare_kinds(const OpResult& got, const OpResult& wanted) {
  const auto describe = [](const Tensor& x) {
    return x.defined() ? std::string(name_of(x.dtype())) + " " + x.shape().to_string() : "nothing";
  };
  const std::string a = describe(got.tensor), b = describe(wanted.tensor);
  return a == b ? "" : got.name + ": got " + a + " where " + b + " was wanted\n";
}

struct Leaves {
  std::vector<GradSlot> slots;
  std::vector<Tensor> tensors;
};

Leaves make_leaves(const OpCase& op, const OpForm& form, Context& device, Tape& tape) {
  Leaves leaves;
  leaves.slots.resize(op.inputs.size());
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const OpInput& input = op.inputs[i];
    const Tensor x =
        place(device, in_form(host_numbers(input, form.elements, 1 + i), form), form.offset);
    const bool weight = i >= op.activations && input.ids == 0;
    if (weight) {
      const Tensor host =
          in_form(host_numbers({.shape = input.shape}, form.accumulators, 100 + i), form);
      leaves.slots[i] = {.grad = place(device, host, form.offset), .empty = !form.split};
    }
    leaves.tensors.push_back(i < op.activations
                                 ? tape.input(x, input.ids == 0)
                                 : tape.weight(x, weight ? &leaves.slots[i] : nullptr));
  }
  return leaves;
}

void run_backward(const OpForm& form, Context& device, Tape& tape,
                  const std::vector<Tensor>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    // Few digits, so that seeds of all dtypes are the same numbers.
    const Tensor seed = host_numbers({.shape = outputs[i].shape()}, DType::kBF16, 50 + i);
    Context host(tensor::make_cpu_allocator());
    tape.seed(outputs[i], place(device, tensor::cast(host, seed, outputs[i].dtype()), form.offset));
  }
  if (form.split) {
    tape.backward_input(device);
    tape.backward_weight(device);
  } else {
    tape.backward(device);
  }
}

// How many units of which roundoff a result may be wrong by.
struct Allowed {
  double units;
  double unit;
};
Allowed allowed_to(const OpCase& op, const OpResult& wanted) {
  return {wanted.name.starts_with("output") ? op.output : op.grad, unit(wanted.tensor.dtype())};
}

// Both are rounded, and the result passes what the operation computes with on the way.
Allowed allowed_beside_exact(const OpCase& op, const OpForm& form, const OpResult& wanted) {
  Allowed allowed = allowed_to(op, wanted);
  allowed.units += 2;
  const DType dtype = wanted.tensor.dtype();
  if (dtype == DType::kF32 || dtype == DType::kF64) {
    allowed.units *= std::sqrt(static_cast<double>(op.terms));
  }
  if (op.rounds) allowed.unit = std::max(allowed.unit, unit(form.elements));
  return allowed;
}

std::string compare(const std::vector<OpResult>& got, const std::vector<OpResult>& wanted,
                    const std::function<Allowed(const OpResult&)>& allowed_for) {
  std::string text;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::string kinds = compare_kinds(got[i], wanted[i]);
    text += kinds;
    if (!kinds.empty() || !wanted[i].tensor.defined()) continue;
    const Allowed allowed = allowed_for(wanted[i]);
    const double error = worst_error(got[i].tensor, wanted[i].tensor) / allowed.unit;
    if (error <= allowed.units) continue;
    text += got[i].name + ": an error of " + std::to_string(error) + " units, allowed are " +
            std::to_string(allowed.units) + "\n";
  }
  return text;
}

}  // namespace

std::vector<OpCase> all_cases() {
  std::vector<OpCase> all;
  for (const auto& table : {elementwise_cases(), movement_cases(), reduction_cases(),
                            lookup_cases(), layer_cases(), optim_cases()}) {
    all.insert(all.end(), table.begin(), table.end());
  }
  return all;
}

std::string OpForm::to_string() const {
  return std::string(name_of(elements)) + ", gradients in " + std::string(name_of(accumulators)) +
         ", offset " + std::to_string(offset) + (split ? ", two passes" : "") +
         (exact ? ", exact" : "");
}

std::vector<OpForm> forms_of(const OpCase& op) {
  std::vector<OpForm> forms = {{DType::kF64, DType::kF64, 0, false},
                               {DType::kF64, DType::kF64, 1, true},
                               {DType::kF32, DType::kF32, 0, true},
                               {DType::kF32, DType::kF32, 3, false}};
  if (!op.half) return forms;
  for (const DType half : {DType::kF16, DType::kBF16}) {
    forms.push_back({half, DType::kF32, 0, false});
    forms.push_back({half, half, 5, true});
  }
  return forms;
}

std::vector<OpResult> run_op(const OpCase& op, const OpForm& form, Context& device,
                             const std::function<void()>& queued) {
  Tape tape;
  device.tape = &tape;
  device.random = {.seed = 7, .step = 3, .layer = 2, .call = 0};
  Leaves leaves = make_leaves(op, form, device, tape);
  const std::vector<Tensor> outputs = op.function(device, leaves.tensors);
  device.tape = nullptr;
  if (op.backward) run_backward(form, device, tape, outputs);
  queued();
  std::vector<OpResult> results;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    results.push_back({"output " + std::to_string(i), to_host(outputs[i])});
  }
  for (std::size_t i = 0; op.backward && i < op.inputs.size(); ++i) {
    if (op.inputs[i].ids > 0) continue;
    const Tensor grad = i < op.activations ? tape.take_input_grad(i) : leaves.slots[i].grad;
    results.push_back({"gradient of input " + std::to_string(i), to_host(grad)});
  }
  return results;
}

std::string compare_results(const OpCase& op, const std::vector<OpResult>& got,
                            const std::vector<OpResult>& wanted) {
  return compare(got, wanted, [&](const OpResult& each) {
    Allowed allowed = allowed_to(op, each);
    if (op.fused) allowed.unit = std::max(allowed.unit, unit(wanted.front().tensor.dtype()));
    return allowed;
  });
}

std::string compare_with_exact(const OpCase& op, const OpForm& form,
                               const std::vector<OpResult>& got,
                               const std::vector<OpResult>& exact) {
  Context host(tensor::make_cpu_allocator());
  std::vector<OpResult> rounded = exact;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    Tensor& wanted = rounded[i].tensor;
    const Tensor& own = got[i].tensor;
    if (wanted.defined() && own.defined() && is_floating(own.dtype())) {
      wanted = tensor::cast(host, wanted, own.dtype());
    }
  }
  return compare(got, rounded,
                 [&](const OpResult& each) { return allowed_beside_exact(op, form, each); });
}

std::string compare_bits(const std::vector<OpResult>& got, const std::vector<OpResult>& wanted) {
  std::string text;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::string kinds = compare_kinds(got[i], wanted[i]);
    text += kinds;
    if (!kinds.empty() || !wanted[i].tensor.defined()) continue;
    const Tensor& a = got[i].tensor;
    if (a.nbytes() == 0 || std::memcmp(a.raw(), wanted[i].tensor.raw(), a.nbytes()) == 0) continue;
    text += got[i].name + ": other bits\n";
  }
  return text;
}

}  // namespace penstock::testing
