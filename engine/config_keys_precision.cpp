#include "engine/config_keys.h"

namespace penstock::engine {

namespace {

constexpr std::string_view kMasters = "the optimizer updates f32 masters of 16-bit weights";
constexpr ValueRule kDtype = one_of("fp32|float|float32|fp16|half|float16|bf16|bfloat16");

constexpr KeyRow kRows[] = {
    supported("fp16.enabled", kBool | kAuto, "false", any(),
              "Weights and activations are f16, gradients of weights add up in fp32, and the "
              "optimizer updates fp32 masters. The loss is scaled; inputs of a floating dtype are "
              "converted."),
    hint("fp16.auto_cast", kBool | kAuto, "false", any(),
         "inputs of a floating dtype are always converted"),
    supported("fp16.loss_scale", kNumber | kAuto, "0", between(0, 4294967296),
              "A fixed scale of the loss; 0: dynamic, by the keys that follow."),
    supported("fp16.initial_scale_power", kInt | kAuto, "16", between(0, 127),
              "The scale begins with 2 to this power."),
    supported("fp16.loss_scale_window", kInt | kAuto, "1000", at_least(1),
              "After as many steps without overflow the scale doubles."),
    supported("fp16.hysteresis", kInt | kAuto, "2", at_least(1),
              "This many overflows halve the scale."),
    supported("fp16.consecutive_hysteresis", kBool | kAuto, "false", any(),
              "A step without overflow forgets earlier ones; else doubling does."),
    supported("fp16.min_loss_scale", kNumber | kAuto, "1", above(0),
              "The scale never falls below; an overflow that would need it to is an error."),
    off_only("fp16.fp16_master_weights_and_grads", kBool | kAuto, "false", any(), kMasters),
    supported("bf16.enabled", kBool | kAuto, "false", any(),
              "Weights and activations are bf16, gradients of weights add up in fp32, and the "
              "optimizer updates fp32 masters. Inputs of a floating dtype are converted."),
    hint("bf16.immediate_grad_update", kBool | kAuto, "false", any(),
         "gradients add up as soon as they are there"),
    hint("bf16.check_grad_overflow", kBool | kAuto, "true", any(),
         "gradients are always checked; non_finite_gradients says what follows"),
    off_only("bf16.bf16_master_weights_and_grads", kBool | kAuto, "false", any(), kMasters),
    off_only("bf16.bf16_optimizer_states", kBool | kAuto, "false", any(),
             "optimizer states are f32"),
    off_only("amp", kObject, "", any(), "use fp16 or bf16"),
    supported("communication_data_type", kString, "", kDtype,
              "In which gradients are summed over replicas, added up in fp32 and rounded; by "
              "default as they add up over micro batches (DeepSpeed: as the weights)."),
    supported("data_types.grad_accum_dtype", kString, "\"fp32\"", kDtype,
              "In which the gradients of weights add up: fp32, or the dtype of the weights."),
    hint("data_types.param_dtype", kString, "", kDtype,
         "fp16.enabled and bf16.enabled choose the dtype of the weights, with which it must agree"),
    hint("data_types.buffer_dtype", kString, "", kDtype, "layers have no buffers"),
};

}  // namespace

KeyChapter precision_keys() {
  return {"Precision", "`bfloat16` is another name of the section `bf16`.", kRows};
}

}  // namespace penstock::engine
