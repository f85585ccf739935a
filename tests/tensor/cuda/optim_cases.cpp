// Optimizer updates of a list of parameters, some of which begin where packs of 16 bytes do not.
#include <functional>

#include "tensor/ops/cast.h"
#include "tensor/ops/fill.h"
#include "tensor/ops/optim.h"
#include "tests/tensor/cuda/op_case.h"

namespace penstock::testing {

namespace {

using tensor::Context;
using tensor::DType;
using tensor::ParameterList;
using tensor::ParameterTensors;
using tensor::Tensor;
using Inputs = std::span<const Tensor>;
using Update = std::function<void(Context&, ParameterList)>;

constexpr std::int64_t kSizes[] = {64, 1, 9000, 7, 16, 0, 33, 10000};
constexpr std::int64_t kTotal = 64 + 1 + 9000 + 7 + 16 + 33 + 10000;

// Parameters of 16 bits are trained as f32 masters. Not the input's storage, which is written.
Tensor master(Context& context, const Tensor& x) {
  return copy(context, cast(context, x, tensor::compute_dtype(x.dtype())));
}

std::vector<Tensor> updated(Context& context, Inputs in, const Update& update, int times) {
  std::vector<Tensor> flats = {master(context, in[0]), in[1], master(context, in[2]),
                               master(context, in[3]),
                               Tensor::zeros(context, in[0].shape(), in[0].dtype())};
  std::vector<ParameterTensors> list;
  std::int64_t at = 0;
  for (const std::int64_t size : kSizes) {
    const auto part = [&](std::size_t i) { return flats[i].rows(at, at + size); };
    list.push_back({part(0), part(1), part(2), part(3), part(4)});
    at += size;
  }
  for (int step = 0; step < times; ++step) update(context, list);
  return {flats[0], flats[2], flats[3], flats[4]};
}

OpCase optim_case(const std::string& name, const Update& update, int times = 2) {
  return {.name = name,
          .function = [update, times](Context& c, Inputs in) -> std::vector<Tensor> {
            return updated(c, in, update, times);
          },
          .inputs = {{{kTotal}}, {{kTotal}}, {{kTotal}, -0.1, 0.1}, {{kTotal}, 0.01, 0.1}},
          .activations = 4,
          .output = 8,
          .backward = false};
}

}  // namespace

std::vector<OpCase> optim_cases() {
  const tensor::LambHyper lamb{.lr = 0.01, .weight_decay = 0.1};
  std::vector<OpCase> cases = {
      optim_case("sgd",
                 [](Context& c, ParameterList list) {
                   sgd_update(c, list, {.lr = 0.1, .weight_decay = 0.1}, 0.5, false);
                 }),
      // At the first update, which does not read the buffer, and later.
      optim_case(
          "first_momentum",
          [](Context& c, ParameterList list) {
            sgd_update(c, list, {.lr = 0.1, .momentum = 0.9, .dampening = 0.1}, 0.5, true);
            sgd_update(c, list, {.lr = 0.1, .momentum = 0.9, .dampening = 0.1}, 0.5, false);
          },
          1),
      optim_case("momentum",
                 [](Context& c, ParameterList list) {
                   sgd_update(c, list, {.lr = 0.1, .momentum = 0.9, .nesterov = true}, 0.5, false);
                 }),
      optim_case("adamw",
                 [](Context& c, ParameterList list) {
                   adam_update(c, list, {.lr = 0.01, .weight_decay = 0.1, .decoupled = true}, 3,
                               0.5);
                 }),
      // Once, and in halves: where two numbers cancel, rounding would decide on the sign.
      optim_case(
          "lion",
          [](Context& c, ParameterList list) {
            lion_update(c, list, {.lr = 0.1, .beta1 = 0.5}, 1);
          },
          1),
      optim_case("lamb", [lamb](Context& c, ParameterList list) {
        lamb_apply(c, list, lamb, 2, lamb_moments(c, list, lamb, 0.5));
      })};
  cases.back().waits = true;
  return cases;
}

}  // namespace penstock::testing
