#include "engine/config_keys.h"

namespace penstock::engine {

namespace {

constexpr std::string_view kWarmups = "WarmupLR|WarmupDecayLR";
constexpr std::string_view kAllWarmups = "WarmupLR|WarmupDecayLR|WarmupCosineLR";
constexpr std::string_view kTotals = "WarmupDecayLR|WarmupCosineLR";
constexpr std::string_view kCycle = "OneCycle";
constexpr std::string_view kRange = "LRRangeTest";
// Step and stair counts are multiplied with each other; the bound keeps that inside 64 bits.
constexpr ValueRule kCount = between(0, 1e9);
constexpr ValueRule kPositiveCount = between(1, 1e9);
constexpr ValueRule kMomentum = {.low = 0, .high = 1, .high_open = true};

constexpr KeyRow kRows[] = {
    supported("scheduler.type", kString, kRequired,
              one_of("WarmupLR|WarmupDecayLR|WarmupCosineLR|OneCycle|LRRangeTest",
                     "LambdaLR|MultiplicativeLR|StepLR|MultiStepLR|ConstantLR|LinearLR|"
                     "ExponentialLR|PolynomialLR|CosineAnnealingLR|CyclicLR|OneCycleLR|"
                     "CosineAnnealingWarmRestarts|ReduceLROnPlateau"),
              "The schedule; without a scheduler section the learning rate is constant."),
    supported("scheduler.params.warmup_min_lr", kNumber | kNumberList, "0.0", at_least(0),
              "Learning rate at index 0; one, or one per parameter group.", kWarmups),
    supported("scheduler.params.warmup_max_lr", kNumber | kNumberList, "", at_least(0),
              "Learning rate after the warm-up; left out: each group's own.", "WarmupLR"),
    supported("scheduler.params.warmup_max_lr", kNumber | kNumberList, "0.001", at_least(0),
              "Learning rate after the warm-up.", "WarmupDecayLR"),
    supported("scheduler.params.warmup_num_steps", kInt, "1000", at_least(1),
              "Updates of the warm-up; counts as at least 2.", kAllWarmups),
    supported("scheduler.params.warmup_type", kString, "\"log\"", one_of("log|linear"),
              "Shape of the warm-up.", kAllWarmups),
    supported("scheduler.params.total_num_steps", kInt, kRequired, at_least(1),
              "Updates until the end of the decay, not fewer than warmup_num_steps.", kTotals),
    supported("scheduler.params.warmup_min_ratio", kNumber, "0.0", at_least(0),
              "Part of the group's learning rate at index 0.", "WarmupCosineLR"),
    supported("scheduler.params.cos_min_ratio", kNumber, "0.0001", at_least(0),
              "Part of the group's learning rate at the end.", "WarmupCosineLR"),
    supported("scheduler.params.cycle_min_lr", kNumber | kNumberList, kRequired, at_least(0),
              "Learning rate at both ends of the cycle; one, or one per parameter group.", kCycle),
    supported("scheduler.params.cycle_max_lr", kNumber | kNumberList, kRequired, at_least(0),
              "Learning rate at the peak; one, or one per parameter group.", kCycle),
    supported("scheduler.params.cycle_first_step_size", kInt, "2000", kPositiveCount,
              "Updates up to the peak.", kCycle),
    supported("scheduler.params.cycle_second_step_size", kInt, "", kCount,
              "Updates back down; left out: as many as up.", kCycle),
    supported("scheduler.params.cycle_first_stair_count", kInt, "0", kCount,
              "Stairs on the way up; 0 = continuous.", kCycle),
    supported("scheduler.params.cycle_second_stair_count", kInt, "", kCount,
              "Stairs on the way down; left out: as many as up.", kCycle),
    supported("scheduler.params.decay_step_size", kInt, "0", kCount,
              "Updates per unit of decay after the cycle; 0 = no decay.", kCycle),
    supported("scheduler.params.decay_lr_rate", kNumber, "0.0", at_least(0),
              "Learning rate after the cycle: min / (1 + rate × units).", kCycle),
    supported("scheduler.params.cycle_momentum", kBool, "true", any(),
              "Move beta1 opposite to the learning rate and set beta2 to 0.99; without effect for "
              "an optimizer that has no betas.",
              kCycle),
    supported("scheduler.params.cycle_min_mom", kNumber, "0.8", kMomentum, "beta1 at the peak.",
              kCycle),
    supported("scheduler.params.cycle_max_mom", kNumber, "0.9", kMomentum,
              "beta1 at both ends of the cycle.", kCycle),
    supported("scheduler.params.decay_mom_rate", kNumber, "0.0", at_least(0),
              "beta1 after the cycle: max × (1 + rate × units).", kCycle),
    supported("scheduler.params.lr_range_test_min_lr", kNumber | kNumberList, "0.001", at_least(0),
              "Learning rate that the test starts from; one, or one per parameter group.", kRange),
    supported("scheduler.params.lr_range_test_step_size", kInt, "2000", kPositiveCount,
              "Updates per unit of growth.", kRange),
    supported("scheduler.params.lr_range_test_step_rate", kNumber, "1.0", at_least(0),
              "Growth per unit: lr = min × (1 + rate × units).", kRange),
    supported("scheduler.params.lr_range_test_staircase", kBool, "false", any(),
              "Grow once per whole unit only.", kRange),
    off_only("scheduler.params.last_batch_iteration", kInt, "-1", any(),
             "the position comes from the checkpoint"),
};

}  // namespace

KeyChapter scheduler_keys() {
  return {"Scheduler",
          "Update *n* (the first is 1) uses the schedule at index *n* − 1; a skipped step does not "
          "advance it. A checkpoint holds the index only: after a resume all values come from the "
          "configuration of the resuming run, so a changed learning rate or schedule applies from "
          "its first update on.",
          kRows};
}

}  // namespace penstock::engine
