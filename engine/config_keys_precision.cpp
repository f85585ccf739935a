#include "engine/config_keys.h"

namespace penstock::engine {

namespace {

constexpr std::string_view kOnlyFp32 = "training runs in fp32 here";
constexpr std::string_view kNeedsFp16 = "belongs to fp16, which is off";
constexpr std::string_view kNeedsBf16 = "belongs to bf16, which is off";
constexpr ValueRule kFp32 = one_of("fp32|float|float32", "fp16|half|float16|bf16|bfloat16");

constexpr KeyRow kRows[] = {
    off_only("fp16.enabled", kBool | kAuto, "false", any(), kOnlyFp32),
    hint("fp16.auto_cast", kBool | kAuto, "false", any(), kNeedsFp16),
    hint("fp16.loss_scale", kNumber | kAuto, "0", at_least(0), kNeedsFp16),
    hint("fp16.initial_scale_power", kInt | kAuto, "16", between(0, 127), kNeedsFp16),
    hint("fp16.loss_scale_window", kInt | kAuto, "1000", at_least(1), kNeedsFp16),
    hint("fp16.hysteresis", kInt | kAuto, "2", at_least(1), kNeedsFp16),
    hint("fp16.consecutive_hysteresis", kBool | kAuto, "false", any(), kNeedsFp16),
    hint("fp16.min_loss_scale", kNumber | kAuto, "1", above(0), kNeedsFp16),
    hint("fp16.fp16_master_weights_and_grads", kBool | kAuto, "false", any(), kNeedsFp16),
    off_only("bf16.enabled", kBool | kAuto, "false", any(), kOnlyFp32),
    hint("bf16.immediate_grad_update", kBool | kAuto, "false", any(), kNeedsBf16),
    hint("bf16.check_grad_overflow", kBool | kAuto, "true", any(), kNeedsBf16),
    hint("bf16.bf16_master_weights_and_grads", kBool | kAuto, "false", any(), kNeedsBf16),
    hint("bf16.bf16_optimizer_states", kBool | kAuto, "false", any(), kNeedsBf16),
    off_only("amp", kObject, "", any(), kOnlyFp32),
    off_only("communication_data_type", kString, "", kFp32, "gradients travel in fp32 here"),
    off_only("data_types.grad_accum_dtype", kString, "", kFp32, "gradients add up in fp32 here"),
    off_only("data_types.param_dtype", kString, "", kFp32, kOnlyFp32),
    off_only("data_types.buffer_dtype", kString, "", kFp32, kOnlyFp32),
};

}  // namespace

KeyChapter precision_keys() {
  return {"Precision", "`bfloat16` is another name of the section `bf16`.", kRows};
}

}  // namespace penstock::engine
