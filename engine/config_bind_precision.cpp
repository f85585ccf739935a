// Reads what a run computes and communicates in, and how gradients are reduced and shared out.
#include "engine/config_bind.h"

namespace penstock::engine {

namespace {

using tensor::DType;

void read_dtype(const SectionReader& section, std::string_view key, DType& out) {
  section.read_choice(key, out,
                      {{"fp32|float|float32", DType::kF32},
                       {"fp16|half|float16", DType::kF16},
                       {"bf16|bfloat16", DType::kBF16}});
}

}  // namespace

PrecisionConfig bind_precision(const JsonValue& root) {
  PrecisionConfig precision;
  const SectionReader fp16(root, "fp16."), data_types(root, "data_types.");
  bool f16 = false, bf16 = false;
  fp16.read("enabled", f16);
  SectionReader(root, "bf16.").read("enabled", bf16);
  SectionReader(root, "bfloat16.").read("enabled", bf16);
  if (f16) precision.weights = DType::kF16;
  if (bf16) precision.weights = DType::kBF16;
  read_dtype(data_types, "grad_accum_dtype", precision.gradients);
  const SectionReader top(root);
  if (top.find("communication_data_type") != nullptr) {
    read_dtype(top, "communication_data_type", precision.communication.emplace(DType::kF32));
  }
  LossScaleConfig& scale = precision.loss_scale;
  fp16.read("loss_scale", scale.fixed);
  fp16.read("initial_scale_power", scale.initial_scale_power);
  fp16.read("loss_scale_window", scale.window);
  fp16.read("hysteresis", scale.hysteresis);
  fp16.read("consecutive_hysteresis", scale.consecutive_hysteresis);
  fp16.read("min_loss_scale", scale.min_scale);
  return precision;
}

ZeroConfig bind_zero(const JsonValue& root) {
  const SectionReader section(root, "zero_optimization.");
  ZeroConfig zero;
  section.read("stage", zero.stage);
  section.read("reduce_each_micro_batch", zero.reduce_each_micro_batch);
  return zero;
}

ReductionConfig bind_reduction(const JsonValue& root) {
  const SectionReader top(root);
  ReductionConfig reduction;
  top.read_choice("gradient_allreduce_op", reduction.mean, {{"mean", true}, {"sum", false}});
  top.read("gradient_predivide_factor", reduction.predivide_factor);
  top.read("prescale_gradients", reduction.prescale);
  return reduction;
}

}  // namespace penstock::engine
