#include "engine/config_bind.h"

namespace penstock::engine {

namespace {

void read_warmup_type(const SectionReader& params, WarmupType& type) {
  params.read_choice("warmup_type", type,
                     {{"log", WarmupType::kLog}, {"linear", WarmupType::kLinear}});
}

void read_warmup(const SectionReader& params, WarmupLrConfig& warmup) {
  params.read("warmup_min_lr", warmup.min_lr);
  params.read("warmup_max_lr", warmup.max_lr);
  params.read("warmup_num_steps", warmup.num_steps);
  read_warmup_type(params, warmup.type);
}

SchedulerConfig read_cosine(const SectionReader& params) {
  WarmupCosineLrConfig cosine;
  params.read("total_num_steps", cosine.total_num_steps);
  params.read("warmup_num_steps", cosine.warmup_num_steps);
  params.read("warmup_min_ratio", cosine.warmup_min_ratio);
  params.read("cos_min_ratio", cosine.cos_min_ratio);
  read_warmup_type(params, cosine.type);
  return cosine;
}

SchedulerConfig read_one_cycle(const SectionReader& params) {
  OneCycleConfig cycle;
  params.read("cycle_min_lr", cycle.min_lr);
  params.read("cycle_max_lr", cycle.max_lr);
  params.read("cycle_first_step_size", cycle.first_step_size);
  params.read("cycle_second_step_size", cycle.second_step_size);
  params.read("cycle_first_stair_count", cycle.first_stair_count);
  params.read("cycle_second_stair_count", cycle.second_stair_count);
  params.read("decay_step_size", cycle.decay_step_size);
  params.read("decay_lr_rate", cycle.decay_lr_rate);
  params.read("cycle_momentum", cycle.cycle_momentum);
  params.read("cycle_min_mom", cycle.min_mom);
  params.read("cycle_max_mom", cycle.max_mom);
  params.read("decay_mom_rate", cycle.decay_mom_rate);
  return cycle;
}

SchedulerConfig read_range_test(const SectionReader& params) {
  LrRangeTestConfig test;
  params.read("lr_range_test_min_lr", test.min_lr);
  params.read("lr_range_test_step_size", test.step_size);
  params.read("lr_range_test_step_rate", test.step_rate);
  params.read("lr_range_test_staircase", test.staircase);
  return test;
}

}  // namespace

SchedulerConfig bind_scheduler(const JsonValue& root) {
  enum class Kind { kConstant, kWarmup, kDecay, kCosine, kCycle, kRange };
  Kind kind = Kind::kConstant;
  SectionReader(root, "scheduler.")
      .read_choice("type", kind,
                   {{"WarmupLR", Kind::kWarmup},
                    {"WarmupDecayLR", Kind::kDecay},
                    {"WarmupCosineLR", Kind::kCosine},
                    {"OneCycle", Kind::kCycle},
                    {"LRRangeTest", Kind::kRange}});
  const SectionReader params(root, "scheduler.params.");
  switch (kind) {
    case Kind::kConstant:
      break;
    case Kind::kWarmup: {
      WarmupLrConfig warmup;
      read_warmup(params, warmup);
      return warmup;
    }
    case Kind::kDecay: {
      WarmupDecayLrConfig decay;
      read_warmup(params, decay.warmup);
      params.read("total_num_steps", decay.total_num_steps);
      return decay;
    }
    case Kind::kCosine:
      return read_cosine(params);
    case Kind::kCycle:
      return read_one_cycle(params);
    case Kind::kRange:
      return read_range_test(params);
  }
  return {};
}

}  // namespace penstock::engine
