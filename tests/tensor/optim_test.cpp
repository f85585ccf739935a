#include "tensor/ops/optim.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/ops/fill.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::cpu_context;
using penstock::testing::message;
using penstock::testing::uniform;
using penstock::testing::values;

const std::vector<std::int64_t> kLengths = {0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 20000};

void expect_near(const Tensor& got, const std::vector<long double>& expected) {
  const double tolerance = got.dtype() == DType::kF64 ? 1e-14 : 1e-6;
  Context context = cpu_context();
  const auto numbers = values<double>(cast(context, got, DType::kF64));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto wanted = static_cast<double>(expected[i]);
    ASSERT_NEAR(numbers[i], wanted, tolerance * std::max(1.0, std::fabs(wanted))) << i;
  }
}

std::vector<long double> exact(const Tensor& x) {
  Context context = cpu_context();
  const auto numbers = values<double>(cast(context, x, DType::kF64));
  return {numbers.begin(), numbers.end()};
}

// torch.optim.SGD, written down again in long double.
struct PlainSgd {
  SgdHyper hyper;
  std::vector<long double> p, buffer;
  void update(const std::vector<long double>& grad, long double scale, bool first) {
    for (std::size_t i = 0; i < p.size(); ++i) {
      long double g = grad[i] * scale + hyper.weight_decay * p[i];
      if (hyper.momentum != 0) {
        buffer[i] = first ? g : hyper.momentum * buffer[i] + (1 - hyper.dampening) * g;
        g = buffer[i];
      }
      p[i] -= hyper.lr * g;
    }
  }
};

TEST(Sgd, FollowsTheFormula) {
  for (const SgdHyper hyper :
       {SgdHyper{.lr = 0.1}, SgdHyper{.lr = 0.1, .weight_decay = 0.01},
        SgdHyper{.lr = 0.1, .momentum = 0.9},
        SgdHyper{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01}}) {
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      for (const std::int64_t n : kLengths) {
        Context context = cpu_context(/*threads=*/2);
        Tensor p = uniform(context, {n}, dtype, -1, 1, 1);
        // What the buffer holds before the first update must not matter.
        Tensor buffer = Tensor::empty(context, {n}, dtype);
        fill(context, buffer, std::nan(""));
        PlainSgd plain{hyper, exact(p), std::vector<long double>(static_cast<std::size_t>(n))};
        for (int step = 1; step <= 3; ++step) {
          const Tensor grad = uniform(context, {n}, dtype, -1, 1, 10 + step);
          sgd_update(context, p, grad, buffer, hyper, 0.5, step == 1);
          plain.update(exact(grad), 0.5L, step == 1);
        }
        expect_near(p, plain.p);
        if (hyper.momentum != 0) expect_near(buffer, plain.buffer);
      }
    }
  }
}

TEST(Sgd, NeedsNoBufferWithoutMomentum) {
  Context context = cpu_context();
  Tensor p = uniform(context, {5}, DType::kF32, -1, 1);
  Tensor none;
  sgd_update(context, p, p, none, {.lr = 1}, 1, true);
  EXPECT_EQ(values<float>(p), std::vector<float>(5, 0.0f));
}

// torch.optim.Adam and AdamW, written down again in long double.
struct PlainAdam {
  AdamHyper hyper;
  std::vector<long double> p, m, v;
  void update(const std::vector<long double>& grad, int step, long double scale) {
    const long double c1 = hyper.bias_correction ? 1 - std::pow(hyper.beta1, step) : 1;
    const long double c2 = hyper.bias_correction ? 1 - std::pow(hyper.beta2, step) : 1;
    for (std::size_t i = 0; i < p.size(); ++i) {
      long double g = grad[i] * scale;
      if (hyper.decoupled) {
        p[i] *= 1 - hyper.lr * hyper.weight_decay;
      } else {
        g += hyper.weight_decay * p[i];
      }
      m[i] = hyper.beta1 * m[i] + (1 - hyper.beta1) * g;
      v[i] = hyper.beta2 * v[i] + (1 - hyper.beta2) * g * g;
      p[i] -= hyper.lr / c1 * m[i] / (std::sqrt(v[i]) / std::sqrt(c2) + hyper.eps);
    }
  }
};

TEST(Adam, FollowsTheFormula) {
  for (const AdamHyper hyper :
       {AdamHyper{.lr = 0.01}, AdamHyper{.lr = 0.01, .weight_decay = 0.1},
        AdamHyper{.lr = 0.01, .weight_decay = 0.1, .decoupled = true},
        AdamHyper{
            .lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .bias_correction = false}}) {
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      for (const std::int64_t n : kLengths) {
        Context context = cpu_context(/*threads=*/2);
        const auto size = static_cast<std::size_t>(n);
        Tensor p = uniform(context, {n}, dtype, -1, 1, 1);
        Tensor m = Tensor::zeros(context, {n}, dtype);
        Tensor v = Tensor::zeros(context, {n}, dtype);
        PlainAdam plain{hyper, exact(p), std::vector<long double>(size),
                        std::vector<long double>(size)};
        for (int step = 1; step <= 3; ++step) {
          const Tensor grad = uniform(context, {n}, dtype, -1, 1, 10 + step);
          adam_update(context, p, grad, m, v, hyper, step, 0.25);
          plain.update(exact(grad), step, 0.25L);
        }
        expect_near(p, plain.p);
        expect_near(m, plain.m);
        expect_near(v, plain.v);
      }
    }
  }
}

TEST(Adam, MovesByTheRateAtTheFirstStep) {
  Context context = cpu_context();
  Tensor p = Tensor::empty(context, {1}, DType::kF64);
  fill(context, p, 1.0);
  Tensor m = Tensor::zeros(context, {1}, DType::kF64);
  Tensor v = Tensor::zeros(context, {1}, DType::kF64);
  Tensor grad = Tensor::empty(context, {1}, DType::kF64);
  fill(context, grad, 0.5);
  adam_update(context, p, grad, m, v, {.lr = 0.1, .weight_decay = 0.01, .decoupled = true}, 1, 1);
  // m / c1 = g and √(v / c2) = |g|, so the step is lr · g / (|g| + eps).
  EXPECT_NEAR(p.item(), 1.0 * (1 - 0.1 * 0.01) - 0.1 * 0.5 / (0.5 + 1e-8), 1e-15);
  EXPECT_NEAR(m.item(), 0.05, 1e-16);
  EXPECT_NEAR(v.item(), 0.00025, 1e-18);
}

// The gradient of any type × a factor moves an f32 master as its f32 copy would; the new parameter
// is rounded into the weight.
TEST(Updates, TakeGradientsOfAnyTypeForAMaster) {
  Context context = cpu_context(/*threads=*/2);
  constexpr std::int64_t kSize = 20000;
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF64}) {
    const Tensor grad = uniform(context, {kSize}, type, -100, 100, 2);
    const Tensor same = cast(context, grad, DType::kF32);
    const auto run = [&](const Tensor& gradient, const Tensor& rounded) {
      Tensor p = uniform(context, {kSize}, DType::kF32, -1, 1, 1);
      Tensor m = Tensor::zeros(context, {kSize}, DType::kF32);
      Tensor v = Tensor::zeros(context, {kSize}, DType::kF32);
      adam_update(context, p, gradient, m, v, {.lr = 0.1}, 1, 1.0 / 1024, rounded);
      lion_update(context, p, gradient, m, {.lr = 0.1}, 1.0 / 1024, rounded);
      sgd_update(context, p, gradient, m, {.lr = 0.1, .momentum = 0.5}, 1.0 / 1024, false, rounded);
      return p;
    };
    const Tensor weight = Tensor::zeros(context, {kSize}, DType::kF16);
    const Tensor p = run(grad, weight);
    EXPECT_EQ(values<float>(p), values<float>(run(same, {})));
    const Tensor wanted = cast(context, p, DType::kF16);
    EXPECT_TRUE(std::equal(weight.raw(), weight.raw() + weight.nbytes(), wanted.raw()));
  }
}

TEST(Updates, ShowWhatIsNotANumber) {
  Context context = cpu_context();
  Tensor p = Tensor::zeros(context, {1}, DType::kF32);
  Tensor m = Tensor::zeros(context, {1}, DType::kF32);
  Tensor grad = Tensor::zeros(context, {1}, DType::kF32);
  fill(context, grad, std::nan(""));
  lion_update(context, p, grad, m, {}, 1);
  EXPECT_TRUE(std::isnan(p.item()));
}

// Splitting a parameter must not change its bits: shards of a weight are updated by their owners.
TEST(Updates, DoNotDependOnWhereAnElementLies) {
  Context context = cpu_context();
  const std::int64_t n = 1000;
  const auto run = [&](const std::vector<std::int64_t>& cuts) {
    Tensor p = uniform(context, {n}, DType::kF32, -1, 1, 1);
    const Tensor grad = uniform(context, {n}, DType::kF32, -1, 1, 2);
    Tensor m = Tensor::zeros(context, {n}, DType::kF32);
    Tensor v = Tensor::zeros(context, {n}, DType::kF32);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto part = [&](const Tensor& x) { return x.rows(cuts[i], cuts[i + 1]); };
      Tensor parts[] = {part(p), part(m), part(v)};
      adam_update(context, parts[0], part(grad), parts[1], parts[2], {.weight_decay = 0.1}, 1, 0.3);
      sgd_update(context, parts[0], part(grad), parts[1], {.momentum = 0.9}, 0.3, false);
    }
    return values<float>(p);
  };
  EXPECT_EQ(run({0, n}), run({0, 1, 30, 331, 999, n}));
}

TEST(Updates, RefuseWhatDoesNotFit) {
  Context context = cpu_context();
  Tensor p = Tensor::zeros(context, {2, 3}, DType::kF32);
  Tensor state = Tensor::zeros(context, {2, 3}, DType::kF32);
  Tensor short_state = Tensor::zeros(context, {2, 2}, DType::kF32);
  Tensor none;
  EXPECT_EQ(
      message<InvalidArgument>([&] { sgd_update(context, p, short_state, none, {}, 1, true); }),
      "[sgd_update] expected equal shapes, got [2, 3] and [2, 2]");
  EXPECT_EQ(message<InvalidArgument>(
                [&] { sgd_update(context, p, p, none, {.momentum = 0.9}, 1, true); }),
            "[sgd_update] expected a defined tensor, got an undefined tensor");
  EXPECT_EQ(
      message<InvalidArgument>([&] { adam_update(context, p, p, state, short_state, {}, 1, 1); }),
      "[adam_update] expected equal shapes, got [2, 3] and [2, 2]");
  EXPECT_EQ(message<InvalidArgument>([&] { adam_update(context, p, p, state, state, {}, 0, 1); }),
            "[adam_update] expected a step of at least 1, got 0");
  const Tensor half = Tensor::zeros(context, {2, 3}, DType::kBF16);
  Tensor half_state = half;
  EXPECT_EQ(message<InvalidArgument>(
                [&] { adam_update(context, half_state, half, half_state, half_state, {}, 1, 1); }),
            "[adam_update] expected a parameter of f32 or f64 (one of 16 bits has a master to be "
            "updated), got bf16 [2, 3] on cpu");
  EXPECT_EQ(message<InvalidArgument>([&] {
              sgd_update(context, p, p, state,
                         {.momentum = 0.5, .dampening = 0.1, .nesterov = true}, 1, true);
            }),
            "[sgd_update] expected a momentum and no dampening with nesterov, got a momentum of "
            "0.500000 and a dampening of 0.100000");
  EXPECT_THROW(adam_update(context, p, p, state, state, {}, 1, 1, short_state), InvalidArgument);
  p.storage()->seal();
  EXPECT_EQ(message<InvalidArgument>([&] { adam_update(context, p, p, state, state, {}, 1, 1); }),
            "[adam_update] expected a tensor that may be written, got f32 [2, 3] on cpu, which was "
            "given to send and is immutable since");
}

}  // namespace
}  // namespace penstock::tensor
