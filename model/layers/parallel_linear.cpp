#include "model/layers/parallel_linear.h"

#include <utility>

#include "model/parallel/collectives.h"
#include "tensor/error.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/shape.h"

namespace penstock::model {

namespace {

using tensor::WeightLayout;

Split split_of(std::int64_t out, const ColumnLinearOptions& options, int axis) {
  Split split = Split::along(axis, out, options.rest);
  if (!options.blocks.empty()) split.blocks = options.blocks;
  return split;
}

Split::Block replicated_block(const ColumnLinearOptions& options) {
  if (options.rest != Split::Rest::kReplicate) return {};
  if (options.blocks.size() == 1 && options.layout == WeightLayout::kOutIn) {
    return options.blocks.front();
  }
  throw tensor::InvalidArgument(
      "[column_linear] expected one block and a weight [out, in] where units may be replicated, "
      "got " +
      std::to_string(options.blocks.size()) + " blocks" +
      (options.layout == WeightLayout::kOutIn ? "" : " and a weight [in, out]"));
}

}  // namespace

ColumnLinear::ColumnLinear(std::int64_t in, std::int64_t out, const ColumnLinearOptions& options)
    : out_(out),
      replicated_(replicated_block(options)),
      weight_(
          add_parameter("weight", linear_weight_shape(in, out, options.layout),
                        options.weight_init.value_or(linear_default_init(in)),
                        split_of(out, options, options.layout == WeightLayout::kOutIn ? 0 : 1))),
      layout_(options.layout) {
  if (!options.bias) return;
  bias_ = &add_parameter("bias", {out}, options.bias_init.value_or(linear_default_init(in)),
                         split_of(out, options, 0));
}

std::vector<Tensor> ColumnLinear::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("column_linear", inputs, 1);
  if (context.model.size > 1 && weight_.split.blocks != std::vector<Split::Block>{{out_, 1}}) {
    throw tensor::Unsupported(
        "[column_linear] the outputs come in blocks, which the ranks of a model group do not put "
        "together; use apply() inside of a layer");
  }
  return {gather_features(context, apply(context, copy_to_group(context, inputs[0])), out_)};
}

ColumnLinear::Weights ColumnLinear::own_weights(Context& context) const {
  Tensor weight = context.weight(weight_);
  Tensor bias = bias_ == nullptr ? Tensor() : context.weight(*bias_);
  const int size = context.model.size;
  if (replicated_.units > 0 && replicated_.units % size != 0) {
    const std::int64_t unit = context.model.rank * replicated_.units / size;
    const std::int64_t begin = unit * replicated_.unit_size;
    const std::int64_t end = begin + replicated_.unit_size;
    weight = tensor::slice_rows(context, weight, begin, end);
    if (bias_ != nullptr) bias = tensor::slice_rows(context, bias, begin, end);
  }
  return {std::move(weight), std::move(bias)};
}

Tensor ColumnLinear::apply(Context& context, const Tensor& x) {
  const Weights own = own_weights(context);
  return tensor::linear(context, x, own.weight, own.bias, layout_);
}

tensor::GeluHidden ColumnLinear::apply_gelu(Context& context, const Tensor& x) {
  const Weights own = own_weights(context);
  return tensor::linear_gelu(context, x, own.weight, own.bias, layout_);
}

RowLinear::RowLinear(std::int64_t in, std::int64_t out, const LinearOptions& options)
    : weight_(add_parameter("weight", linear_weight_shape(in, out, options.layout),
                            options.weight_init.value_or(linear_default_init(in)),
                            Split::along(options.layout == WeightLayout::kOutIn ? 1 : 0, in))),
      layout_(options.layout) {
  if (!options.bias) return;
  bias_ = &add_parameter("bias", {out}, options.bias_init.value_or(linear_default_init(in)),
                         Split::whole(Split::Gradient::kPartOfTheSequence));
}

std::vector<Tensor> RowLinear::forward(Context& context, std::span<const Tensor> inputs) {
  expect_inputs("row_linear", inputs, 1);
  return {apply(context, own_features(context, inputs[0]))};
}

template <class Multiply>
Tensor RowLinear::project(Context& context, const Multiply& multiply) {
  const Tensor weight = context.weight(weight_);
  const Tensor bias = bias_ == nullptr ? Tensor() : context.weight(*bias_);
  if (context.model.size == 1) return multiply(weight, bias);
  // One rank's addend must not have the bias, which counts once.
  const Tensor sum = leave_group(context, multiply(weight, Tensor()));
  return bias.defined() ? tensor::add(context, sum, bias) : sum;
}

Tensor RowLinear::apply(Context& context, const Tensor& x) {
  return project(context, [&](const Tensor& weight, const Tensor& bias) {
    return tensor::linear(context, x, weight, bias, layout_);
  });
}

Tensor RowLinear::apply(Context& context, const tensor::GeluHidden& x) {
  return project(context, [&](const Tensor& weight, const Tensor& bias) {
    return tensor::gelu_linear(context, x, weight, bias, layout_);
  });
}

}  // namespace penstock::model
