// Optimizer updates on an emulated device, against the CPU: lists of parameters, some of which
// begin where packs of 16 bytes do not.
#include "tensor/ops/optim.h"

#include <functional>

#include "tests/tensor/cuda/both.h"

namespace penstock::tensor {
namespace {

class CudaOptim : public OnBothDevices {
 protected:
  using Update = std::function<void(Context&, ParameterList)>;

  // A list as the engine makes it: parts of flat tensors.
  std::vector<ParameterTensors> list_of(const std::vector<Tensor>& flats, bool with_rounded) {
    std::vector<ParameterTensors> list;
    std::int64_t at = 0;
    for (const std::int64_t size : kSizes) {
      const auto part = [&](int i) {
        return flats[static_cast<std::size_t>(i)].rows(at, at + size);
      };
      list.push_back({part(0), part(1), part(2), part(3), with_rounded ? part(4) : Tensor()});
      at += size;
    }
    return list;
  }

  void check(DType dtype, DType grad, bool with_rounded, const Update& update,
             const std::string& what) {
    std::int64_t total = 0;
    for (const std::int64_t size : kSizes) total += size;
    const std::vector<Tensor> flats = {
        numbers({total}, dtype, -1, 1), numbers({total}, grad, -1, 1, 2),
        numbers({total}, dtype, -0.1, 0.1, 3), numbers({total}, dtype, 0, 0.1, 4),
        numbers({total}, DType::kBF16, 0, 0)};
    std::vector<Tensor> on_device;
    for (const Tensor& flat : flats) on_device.push_back(to_device(flat));
    for (int step = 0; step < 2; ++step) {
      update(cpu(), list_of(flats, with_rounded));
      update(device(), list_of(on_device, with_rounded));
    }
    const double tolerance = dtype == DType::kF64 ? 1e-13 : 1e-6;
    for (std::size_t i : {0, 2, 3}) expect_near(on_device[i], flats[i], tolerance, what);
    expect_near(on_device[4], flats[4], 1e-2, what + ": rounded");
  }
  void check(const Update& update, const std::string& what) {
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      for (const DType grad : kFloating) check(dtype, grad, grad != dtype, update, what);
    }
  }

  static constexpr std::int64_t kSizes[] = {64, 1, 9000, 7, 16, 0, 33, 10000};
};

TEST_F(CudaOptim, EqualsTheCpu) {
  check(
      [](Context& c, ParameterList list) {
        sgd_update(c, list, {.lr = 0.1, .weight_decay = 0.01}, 0.5, true);
      },
      "sgd");
  for (const bool nesterov : {false, true}) {
    check(
        [=](Context& c, ParameterList list) {
          sgd_update(c, list, {.lr = 0.1, .momentum = 0.9, .nesterov = nesterov}, 0.5, false);
        },
        "sgd with momentum");
  }
  check(
      [](Context& c, ParameterList list) {
        adam_update(c, list, {.lr = 0.1, .weight_decay = 0.1, .decoupled = true}, 3, 0.5);
      },
      "adamw");
  check([](Context& c, ParameterList list) { lion_update(c, list, {.lr = 0.1}, 0.5); }, "lion");
  const LambHyper hyper{.lr = 0.01, .weight_decay = 0.1};
  check(
      [&](Context& c, ParameterList list) {
        lamb_apply(c, list, hyper, 2, lamb_moments(c, list, hyper, 0.5));
      },
      "lamb");
}

TEST_F(CudaOptim, AFirstUpdateDoesNotReadTheBuffer) {
  const Tensor p = to_device(numbers({20}, DType::kF32, -1, 1));
  const Tensor grad = to_device(numbers({20}, DType::kF32, -1, 1, 2));
  const Tensor buffer = to_device(numbers({20}, DType::kF32, NAN, NAN));
  const ParameterTensors one{p, grad, buffer};
  sgd_update(device(), ParameterList(&one, 1), {.momentum = 0.9}, 1, true);
  for (const double number : doubles(to_cpu(p))) EXPECT_TRUE(std::isfinite(number));
}

TEST_F(CudaOptim, AListRunsInOneKernel) {
  std::vector<ParameterTensors> list;
  for (int i = 0; i < 40; ++i) {
    const auto part = [&] { return Tensor::zeros(device(), {10 + i}, DType::kF32); };
    list.push_back({part(), part(), part(), part()});
  }
  const auto launches = [] {
    std::int64_t total = 0;
    for (const auto& [name, count] : cuda_emulation::counters().launches) total += count;
    return total;
  };
  const std::int64_t before = launches();
  adam_update(device(), list, {}, 1, 1);
  EXPECT_EQ(launches() - before, 1);
}

}  // namespace
}  // namespace penstock::tensor
