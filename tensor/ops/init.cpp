#include "tensor/ops/init.h"

#include <cstdint>
#include <limits>
#include <string>

#include "tensor/cpu/init.h"
#include "tensor/ops/check.h"
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

}  // namespace

void init_normal(Context& context, Tensor& target, const InitKey& key, double mean, double stddev) {
  check_target("init_normal", context, target);
  if (!(stddev >= 0)) {
    throw_invalid("init_normal", "a standard deviation of at least 0", std::to_string(stddev));
  }
  if (!on_cpu("init_normal", context)) return;
  const RandomStream stream = stream_of(key);
  cpu::draw(context, target, [&](std::int64_t begin, std::int64_t end, double* numbers) {
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
  if (!on_cpu("init_uniform", context)) return;
  const RandomStream stream = stream_of(key);
  cpu::draw(context, target, [&](std::int64_t begin, std::int64_t end, double* numbers) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto element = static_cast<std::uint64_t>(key.first_element + i);
      numbers[i - begin] = low + (high - low) * stream.uniform(element);
    }
  });
}

}  // namespace penstock::tensor
