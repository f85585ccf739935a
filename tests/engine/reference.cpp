#include "tests/engine/reference.h"

#include <cmath>

namespace penstock::testing {

using tensor::Tensor;

Reference::Reference(const model::Module& module, const Weights& weights)
    : module_(module),
      context_(tensor::make_cpu_allocator()),
      stage_(module_, 0, std::ssize(module_.layers), {}, context_) {
  for (const model::StageParameter& parameter : stage_.parameters()) {
    const std::vector<float>& values = weights.at(parameter.name);
    weights_[parameter.name].assign(values.begin(), values.end());
    store(parameter.name);
  }
}

double Reference::accumulate(const model::MicroBatch& batch, double scale) {
  tensor::Tape tape;
  context_.tape = &tape;
  context_.sample_ids = batch.ids;
  std::vector<Tensor> inputs;
  for (const Tensor& input : batch.inputs) inputs.push_back(tape.input(input, false));
  const std::vector<Tensor> outputs = stage_.forward(context_, inputs, /*with_grads=*/true);
  const Tensor loss = module_.loss->forward(context_, outputs, batch.labels).loss;
  const auto factor = static_cast<float>(scale);
  tape.seed(loss, Tensor::from<float>(context_, loss.shape(), std::span(&factor, 1)));
  tape.backward(context_);
  context_.tape = nullptr;

  for (const model::StageParameter& parameter : stage_.parameters()) {
    for (const std::size_t use : parameter.uses) {
      const tensor::GradSlot& slot = stage_.slots()[use];
      std::vector<double>& sum = gradients_[parameter.name];
      sum.resize(static_cast<std::size_t>(parameter.parameter->shape.numel()));
      if (slot.empty) continue;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += slot.grad.data<float>()[i];
    }
  }
  stage_.clear_grads();
  return loss.item();
}

Weights Reference::gradients() const {
  Weights result;
  for (const auto& [name, values] : gradients_) result[name].assign(values.begin(), values.end());
  return result;
}

double Reference::norm() const {
  double sum = 0.0;
  for (const auto& [name, values] : gradients_) {
    for (const double value : values) sum += value * value;
  }
  return std::sqrt(sum);
}

void Reference::sgd(double lr, double factor) {
  for (const auto& [name, gradient] : gradients_) {
    std::vector<double>& weight = weights_[name];
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] -= lr * factor * gradient[i];
    store(name);
  }
}

void Reference::adamw(const AdamW& options, double factor) {
  ++updates_;
  const double correction1 = 1.0 - std::pow(options.beta1, updates_);
  const double correction2 = 1.0 - std::pow(options.beta2, updates_);
  for (const auto& [name, gradient] : gradients_) {
    std::vector<double>& weight = weights_[name];
    std::vector<double>& m = moment1_[name];
    std::vector<double>& v = moment2_[name];
    m.resize(weight.size());
    v.resize(weight.size());
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const double g = factor * gradient[i];
      m[i] = options.beta1 * m[i] + (1.0 - options.beta1) * g;
      v[i] = options.beta2 * v[i] + (1.0 - options.beta2) * g * g;
      const double step = m[i] / correction1 / (std::sqrt(v[i] / correction2) + options.eps);
      weight[i] -= options.lr * (step + options.weight_decay * weight[i]);
    }
    store(name);
  }
}

Weights Reference::weights() const {
  Weights result;
  for (const auto& [name, values] : weights_) result[name].assign(values.begin(), values.end());
  return result;
}

void Reference::store(const std::string& name) {
  const std::vector<double>& values = weights_.at(name);
  for (const model::StageParameter& parameter : stage_.parameters()) {
    if (parameter.name != name) continue;
    float* target = parameter.parameter->value.data<float>();
    for (const double value : values) *target++ = static_cast<float>(value);
  }
}

model::MicroBatch take(model::DataSource& source, std::int64_t rows) {
  std::optional<model::MicroBatch> batch = source.next(rows);
  if (!batch || batch->rows() != rows) throw std::logic_error("the source has too few rows");
  return std::move(*batch);
}

}  // namespace penstock::testing
