#include "tensor/ops/init.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "tensor/cpu/init.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/random.h"

namespace penstock::tensor {

namespace {

// Steps of training count from 0, so no draw of a forward has this one.
constexpr std::uint64_t kBeforeTraining = std::numeric_limits<std::uint64_t>::max();

RandomStream stream_of(const InitKey& key) {
  return RandomStream({key.seed, kBeforeTraining, key.layer, key.parameter});
}

void check_target(const char* op, const Context& context, const Tensor& target) {
  check_floating(op, context, {&target});
  check_writable(op, target);
}

// Sets the target's elements [begin, end) to draw(begin, end, numbers), for one range after the
// other. Numbers for a device are drawn here as well: weights begin with the same bits wherever
// they are trained, which the logarithms and cosines of devices would not give.
template <class Draw>
void draw_elements(const Context& context, const Tensor& target, const Draw& draw) {
  const auto on_host = [&](const Context& host, const Tensor& part, std::int64_t first) {
    cpu::draw(host, part, [&](std::int64_t begin, std::int64_t end, double* numbers) {
      draw(first + begin, first + end, numbers);
    });
  };
  const auto to_device = [&] {
    constexpr std::int64_t kPart = 1 << 20;
    Context host(make_cpu_allocator());
    host.threads = context.threads;
    const std::int64_t n = target.numel();
    const Tensor buffer = Tensor::empty(host, {std::min(kPart, n)}, target.dtype());
    for (std::int64_t first = 0; first < n; first += kPart) {
      const Tensor part = buffer.rows(0, std::min(kPart, n - first));
      on_host(host, part, first);
      const Tensor to = target.view({n}).rows(first, first + part.numel());
      context.allocator->upload(to.raw(), {part.raw(), part.nbytes()});
    }
  };
  on_device(
      context, [&] { on_host(context, target, 0); }, to_device);
}

}  // namespace

void init_normal(Context& context, Tensor& target, const InitKey& key, double mean, double stddev) {
  check_target("init_normal", context, target);
  if (!(stddev >= 0)) {
    throw_invalid("init_normal", "a standard deviation of at least 0", std::to_string(stddev));
  }
  const RandomStream stream = stream_of(key);
  draw_elements(context, target, [&](std::int64_t begin, std::int64_t end, double* numbers) {
    const auto first = static_cast<std::uint64_t>(key.first_element + begin);
    const auto last = static_cast<std::uint64_t>(key.first_element + end);
    for (std::uint64_t pair = first / 2; pair * 2 < last; ++pair) {
      const auto both = stream.normal_pair(pair);
      for (const std::uint64_t half : {0, 1}) {
        const std::uint64_t element = 2 * pair + half;
        if (element < first || element >= last) continue;
        numbers[element - first] = mean + stddev * both[half];
      }
    }
  });
}

void init_uniform(Context& context, Tensor& target, const InitKey& key, double low, double high) {
  check_target("init_uniform", context, target);
  if (!(low <= high)) {
    throw_invalid("init_uniform", "low <= high",
                  std::to_string(low) + " and " + std::to_string(high));
  }
  const RandomStream stream = stream_of(key);
  draw_elements(context, target, [&](std::int64_t begin, std::int64_t end, double* numbers) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto element = static_cast<std::uint64_t>(key.first_element + i);
      numbers[i - begin] = low + (high - low) * stream.uniform(element);
    }
  });
}

}  // namespace penstock::tensor
