#include "engine/batch_config.h"

#include <initializer_list>
#include <limits>
#include <optional>

namespace penstock::engine {

namespace {

constexpr const char* kTotal = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kSteps = "gradient_accumulation_steps";

// A stream has a few instructions per micro batch, and counts them in an int.
constexpr std::int64_t kMostSteps = 1'000'000;

std::string value_text(const char* key, const std::optional<std::int64_t>& value) {
  return std::string(key) + " " + (value ? std::to_string(*value) : "(not given)");
}

[[noreturn]] void fail(const BatchConfig& batch, const DataParallelSize& replicas,
                       const std::string& fact) {
  throw ConfigError("[config] " + value_text(kTotal, batch.train_batch_size) + ", " +
                    value_text(kMicro, batch.train_micro_batch_size_per_gpu) + ", " +
                    value_text(kSteps, batch.gradient_accumulation_steps) +
                    ", data-parallel size " + std::to_string(replicas.size) + " (" +
                    replicas.origin + "): " + fact);
}

void check_positive(const BatchConfig& batch, const DataParallelSize& replicas) {
  for (const auto& value : {batch.train_batch_size, batch.train_micro_batch_size_per_gpu,
                            batch.gradient_accumulation_steps}) {
    if (value && *value < 1) fail(batch, replicas, "each must be at least 1");
  }
}

struct Product {
  std::int64_t value = 1;
  std::string text;  // "4×4×1 = 16"
};

Product multiply(const BatchConfig& batch, const DataParallelSize& replicas,
                 std::initializer_list<std::int64_t> factors) {
  Product product;
  for (const std::int64_t factor : factors) {
    product.text += (product.text.empty() ? "" : "×") + std::to_string(factor);
    if (product.value > std::numeric_limits<std::int64_t>::max() / factor) {
      fail(batch, replicas, product.text + " does not fit into 64 bits");
    }
    product.value *= factor;
  }
  product.text += " = " + std::to_string(product.value);
  return product;
}

void check_steps(const BatchConfig& batch, const DataParallelSize& replicas, std::int64_t steps) {
  if (steps <= kMostSteps) return;
  fail(batch, replicas,
       std::to_string(steps) + " accumulation steps, expected at most " +
           std::to_string(kMostSteps) + "; use larger micro batches");
}

}  // namespace

DataParallelSize data_parallel_size(std::int64_t world, std::int64_t pipe, std::int64_t model) {
  const std::string division = "world " + std::to_string(world) + " / (PP " + std::to_string(pipe) +
                               " × TP " + std::to_string(model) + ")";
  if (world < 1 || pipe < 1 || model < 1 || world / pipe / model * pipe * model != world) {
    throw ConfigError("[config] " + division +
                      " is no whole number of replicas; run a multiple of pipeline.stages × "
                      "tensor_parallel.size ranks or change these keys");
  }
  const std::int64_t size = world / pipe / model;
  return {size, division + " = " + std::to_string(size)};
}

BatchTriple resolve_batch(const BatchConfig& batch, const DataParallelSize& replicas) {
  check_positive(batch, replicas);
  if (!batch.train_batch_size && !batch.train_micro_batch_size_per_gpu) {
    fail(batch, replicas, std::string("give ") + kTotal + " or " + kMicro);
  }
  const auto& [total, micro, steps] = batch;
  if (micro && steps) {
    const Product product = multiply(batch, replicas, {*micro, *steps, replicas.size});
    if (total && *total != product.value) {
      fail(batch, replicas,
           product.text + ", expected train_batch_size " + std::to_string(*total) +
               "; change or leave out one of the three");
    }
    check_steps(batch, replicas, *steps);
    return {product.value, *micro, *steps};
  }
  if (!total) return {multiply(batch, replicas, {*micro, replicas.size}).value, *micro, 1};

  // One factor is left: the micro batch, or, if that is given, the accumulation steps.
  const std::int64_t known = micro ? *micro : steps.value_or(1);
  const Product divisor = multiply(batch, replicas, {known, replicas.size});
  if (*total % divisor.value != 0) {
    fail(batch, replicas, std::to_string(*total) + " is not a multiple of " + divisor.text);
  }
  const std::int64_t left = *total / divisor.value;
  check_steps(batch, replicas, micro ? left : known);
  if (micro) return {*total, *micro, left};
  return {*total, left, known};
}

}  // namespace penstock::engine
