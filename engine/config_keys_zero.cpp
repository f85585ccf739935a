#include "engine/config_keys.h"

namespace penstock::engine {

namespace {

constexpr std::string_view kOnePiece = "a stage's gradients and weights are each one piece";
constexpr std::string_view kNeedsStage3 = "belongs to ZeRO stage 3";
constexpr std::string_view kNoOffload =
    "all state stays in the rank's own memory; more pipeline.stages need less of it";
constexpr std::string_view kNoQuantized = "weights and gradients travel as they are";

constexpr KeyRow kRows[] = {
    supported("zero_optimization.stage", kInt | kAuto, "0", between(0, 3),
              "1: each replica keeps and updates the optimizer state of its share of the weights; "
              "2: of complete gradients too it keeps its share alone; 0: each has everything. "
              "3, which shares out the weights, is refused: a pipeline would gather them for every "
              "micro batch."),
    supported("zero_optimization.reduce_each_micro_batch", kBool, "false", any(),
              "With stage 2: gradients go to the shares after each micro batch, not after the "
              "last. Penstock only."),
    hint("zero_optimization.contiguous_gradients", kBool | kAuto, "true", any(),
         "gradients always lie in one piece"),
    hint("zero_optimization.reduce_scatter", kBool | kAuto, "true", any(),
         "gradients that are shared out are always reduced so"),
    hint("zero_optimization.reduce_bucket_size", kInt | kAuto, "500000000", at_least(0), kOnePiece),
    hint("zero_optimization.allgather_partitions", kBool | kAuto, "true", any(), kOnePiece),
    hint("zero_optimization.allgather_bucket_size", kInt | kAuto, "500000000", at_least(0),
         kOnePiece),
    hint("zero_optimization.overlap_comm", kBool | kAuto, "", any(),
         "the schedule decides what overlaps"),
    hint("zero_optimization.load_from_fp32_weights", kBool | kAuto, "true", any(),
         "masters are loaded where a checkpoint has them"),
    hint("zero_optimization.elastic_checkpoint", kBool | kAuto, "false", any(),
         "any grid loads any checkpoint"),
    hint("zero_optimization.round_robin_gradients", kBool | kAuto, "false", any(), kOnePiece),
    hint("zero_optimization.ignore_unused_parameters", kBool | kAuto, "true", any(),
         "a parameter without a gradient counts as zero"),
    off_only("zero_optimization.offload_param", kObject, "", any(), kNoOffload),
    off_only("zero_optimization.offload_optimizer", kObject, "", any(), kNoOffload),
    off_only("zero_optimization.cpu_offload", kBool | kAuto, "false", any(), kNoOffload),
    off_only("zero_optimization.cpu_offload_params", kBool | kAuto, "false", any(), kNoOffload),
    off_only("zero_optimization.cpu_offload_use_pin_memory", kBool | kAuto, "false", any(),
             kNoOffload),
    off_only("zero_optimization.zenflow", kObject, "", any(), kNoOffload),
    hint("zero_optimization.use_multi_rank_bucket_allreduce", kBool | kAuto, "true", any(),
         "a stage's gradients are one bucket"),
    hint("zero_optimization.legacy_stage1", kBool | kAuto, "false", any(), kOnePiece),
    off_only("zero_optimization.zero_quantized_weights", kBool | kAuto, "false", any(),
             kNoQuantized),
    off_only("zero_optimization.zero_quantized_nontrainable_weights", kBool | kAuto, "false", any(),
             kNoQuantized),
    off_only("zero_optimization.zero_quantized_gradients", kBool | kAuto, "false", any(),
             kNoQuantized),
    off_only("zero_optimization.zeropp_loco_param", kObject, "", any(), kNoQuantized),
    off_only("zero_optimization.mics_shard_size", kInt | kAuto, "-1", any(), kNeedsStage3),
    hint("zero_optimization.mics_hierarchical_params_gather", kBool | kAuto, "false", any(),
         kNeedsStage3),
    hint("zero_optimization.zero_hpz_partition_size", kInt | kAuto, "1", at_least(0), kNeedsStage3),
    hint("zero_optimization.memory_efficient_linear", kBool | kAuto, "true", any(), kNeedsStage3),
    hint("zero_optimization.pipeline_loading_checkpoint", kBool | kAuto, "false", any(),
         kNeedsStage3),
    hint("zero_optimization.override_module_apply", kBool | kAuto, "true", any(), kNeedsStage3),
    hint("zero_optimization.log_trace_cache_warnings", kBool | kAuto, "false", any(), kNeedsStage3),
    hint("zero_optimization.sub_group_size", kInt | kAuto, "1000000000", at_least(0), kNeedsStage3),
    hint("zero_optimization.stage3_prefetch_bucket_size", kInt | kAuto, "50000000", at_least(0),
         kNeedsStage3),
    hint("zero_optimization.stage3_param_persistence_threshold", kInt | kAuto, "100000",
         at_least(0), kNeedsStage3),
    hint("zero_optimization.stage3_model_persistence_threshold", kInt | kAuto,
         "9223372036854775807", at_least(0), kNeedsStage3),
    hint("zero_optimization.stage3_max_live_parameters", kInt | kAuto, "1000000000", at_least(0),
         kNeedsStage3),
    hint("zero_optimization.stage3_max_reuse_distance", kInt | kAuto, "1000000000", at_least(0),
         kNeedsStage3),
    hint("zero_optimization.stage3_module_granularity_threshold", kInt | kAuto, "0", at_least(0),
         kNeedsStage3),
    hint("zero_optimization.stage3_use_all_reduce_for_fetch_params", kBool | kAuto, "false", any(),
         kNeedsStage3),
    hint("zero_optimization.stage3_gather_16bit_weights_on_model_save", kBool | kAuto, "false",
         any(), kNeedsStage3),
    hint("zero_allow_untested_optimizer", kBool, "false", any(),
         "every optimizer here is tested with ZeRO"),
    hint("zero_force_ds_cpu_optimizer", kBool, "true", any(),
         "there is one optimizer of each kind"),
};

}  // namespace

KeyChapter zero_keys() {
  return {"ZeRO", "", kRows};
}

}  // namespace penstock::engine
