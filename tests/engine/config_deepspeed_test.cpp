// Every configuration key of DeepSpeed is known here: it works, it is accepted without effect, or
// what it would switch on is refused by name, with what to do instead. And a configuration from
// its tutorials trains.
#include "config_support.h"
#include "engine/config_keys.h"

namespace penstock::engine {
namespace {

using test::config_error;

struct Known {
  std::string_view section;  // "" or "fp16."
  KeyStatus status;
  std::string_view keys;  // "a|b|c"
};

// DeepSpeed 0.19's keys for training, as far as its documentation and its pipeline engine have
// them.
constexpr Known kDeepSpeedKeys[] = {
    {"", KeyStatus::kSupported,
     "train_batch_size|train_micro_batch_size_per_gpu|gradient_accumulation_steps|steps_per_print|"
     "gradient_clipping|memory_breakdown|dump_state|wall_clock_breakdown|dataloader_drop_last|"
     "log_level|prescale_gradients|gradient_predivide_factor|gradient_allreduce_op|"
     "communication_data_type"},
    {"", KeyStatus::kOffOnly,
     "managed_gradient_accumulation|sparse_gradients|disable_allgather|amp|wandb|"
     "comet|flops_profiler|comms_logger|elasticity|curriculum_learning|data_efficiency|"
     "compression_training|progressive_layer_drop|eigenvalue|sparse_attention|autotuning|"
     "hybrid_engine|nebula|compile|sequence_parallel_size|quantize_training"},
    {"", KeyStatus::kHint,
     "vocabulary_size|zero_allow_untested_optimizer|zero_force_ds_cpu_optimizer|aio|"
     "seq_parallel_communication_data_type|use_data_before_expert_parallelism|graph_harvesting|"
     "timers"},
    {"optimizer.", KeyStatus::kSupported, "type"},
    {"optimizer.", KeyStatus::kOffOnly, "legacy_fusion"},
    {"optimizer.params.", KeyStatus::kSupported,
     "lr|betas|eps|weight_decay|bias_correction|adam_w_mode|momentum"},
    {"optimizer.params.", KeyStatus::kHint, "torch_adam"},
    {"optimizer.params.", KeyStatus::kOffOnly, "max_grad_norm|amsgrad"},
    {"scheduler.", KeyStatus::kSupported, "type"},
    {"scheduler.params.", KeyStatus::kSupported,
     "warmup_min_lr|warmup_max_lr|warmup_num_steps|warmup_type|total_num_steps|warmup_min_ratio|"
     "cos_min_ratio|cycle_min_lr|cycle_max_lr|decay_lr_rate|cycle_first_step_size|"
     "cycle_second_step_size|cycle_first_stair_count|cycle_second_stair_count|decay_step_size|"
     "cycle_momentum|cycle_min_mom|cycle_max_mom|decay_mom_rate|lr_range_test_min_lr|"
     "lr_range_test_step_size|lr_range_test_step_rate|lr_range_test_staircase"},
    {"scheduler.params.", KeyStatus::kOffOnly, "last_batch_iteration"},
    {"pipeline.", KeyStatus::kSupported,
     "stages|partition|pipe_partitioned|grad_partitioned|activation_checkpoint_interval"},
    {"pipeline.", KeyStatus::kHint, "seed_layers|use_reentrant"},
    {"checkpoint.", KeyStatus::kHint, "load_universal|checkpoint_serialization"},
    {"checkpoint.parallel_write.", KeyStatus::kHint, "pipeline_stage"},
    {"checkpoint.", KeyStatus::kOffOnly, "use_node_local_storage|writer"},
    {"zero_optimization.", KeyStatus::kHint,
     "contiguous_gradients|reduce_scatter|reduce_bucket_size|allgather_partitions|"
     "allgather_bucket_size|overlap_comm|load_from_fp32_weights|elastic_checkpoint|"
     "round_robin_gradients|ignore_unused_parameters|sub_group_size|stage3_max_live_parameters|"
     "stage3_max_reuse_distance|stage3_prefetch_bucket_size|stage3_param_persistence_threshold|"
     "stage3_model_persistence_threshold|stage3_gather_16bit_weights_on_model_save|"
     "stage3_module_granularity_threshold|stage3_use_all_reduce_for_fetch_params|"
     "use_multi_rank_bucket_allreduce|legacy_stage1|mics_hierarchical_params_gather|"
     "memory_efficient_linear|pipeline_loading_checkpoint|override_module_apply|"
     "log_trace_cache_warnings|zero_hpz_partition_size"},
    {"zero_optimization.", KeyStatus::kOffOnly,
     "offload_param|offload_optimizer|cpu_offload|cpu_offload_params|cpu_offload_use_pin_memory|"
     "zero_quantized_weights|zero_quantized_nontrainable_weights|zero_quantized_gradients|"
     "zeropp_loco_param|mics_shard_size|zenflow"},
    {"zero_optimization.", KeyStatus::kSupported, "stage"},
    {"fp16.", KeyStatus::kSupported,
     "enabled|loss_scale|initial_scale_power|loss_scale_window|hysteresis|consecutive_hysteresis|"
     "min_loss_scale"},
    {"fp16.", KeyStatus::kHint, "auto_cast"},
    {"fp16.", KeyStatus::kOffOnly, "fp16_master_weights_and_grads"},
    {"bf16.", KeyStatus::kSupported, "enabled"},
    {"bf16.", KeyStatus::kHint, "immediate_grad_update|check_grad_overflow"},
    {"bf16.", KeyStatus::kOffOnly, "bf16_master_weights_and_grads|bf16_optimizer_states"},
    {"data_types.", KeyStatus::kSupported, "grad_accum_dtype"},
    {"data_types.", KeyStatus::kHint, "param_dtype"},
    {"tensorboard.", KeyStatus::kSupported, "enabled|output_path|job_name"},
    {"csv_monitor.", KeyStatus::kSupported, "enabled|output_path|job_name"},
};

// Keys that are known, whatever their status is in this version.
constexpr std::string_view kKnownKeys[] = {
    "data_types.buffer_dtype",
    "bfloat16.enabled",
    "checkpoint.tag_validation",
    "activation_checkpointing.partition_activations",
    "activation_checkpointing.cpu_checkpointing",
    "activation_checkpointing.contiguous_memory_optimization",
    "activation_checkpointing.number_checkpoints",
    "activation_checkpointing.synchronize_checkpoint_boundary",
    "activation_checkpointing.profile",
};

TEST(DeepSpeedKeys, AreAllKnown) {
  std::size_t keys = 0;
  for (const Known& known : kDeepSpeedKeys) {
    for (const std::string_view key : split_choices(known.keys)) {
      const std::string path = std::string(known.section) + std::string(key);
      const KeyRow* row = find_key(path, {});
      ASSERT_NE(row, nullptr) << path;
      EXPECT_EQ(static_cast<int>(row->status), static_cast<int>(known.status)) << path;
      ++keys;
    }
  }
  EXPECT_GT(keys, 130u);
  for (const std::string_view path : kKnownKeys) {
    EXPECT_NE(find_key(canonical_path(path), {}), nullptr) << path;
  }
}

TEST(DeepSpeedKeys, OptimizersAndSchedulesOfItsOwnAreTold) {
  for (const char* type : {"OneBitAdam", "ZeroOneAdam", "OneBitLamb", "Adagrad", "Muon"}) {
    EXPECT_HAS(config_error(std::string(R"({"optimizer": {"type": ")") + type + "\"}}"),
               "optimizer.type: the string \"" + std::string(type) +
                   "\" is not available in this version; expected ");
  }
}

TEST(DeepSpeedSections, ThatAreNotHereAreAcceptedWhenOffAndSayWhatToDoInstead) {
  struct Section {
    std::string name, reason;
  };
  const Section sections[] = {
      {"wandb", "csv_monitor and tensorboard write the same series"},
      {"comet", "csv_monitor and tensorboard write the same series"},
      {"flops_profiler", "wall_clock_breakdown and a trace say where the time goes"},
      {"comms_logger", "Engine::rank_reports says what each rank sent"},
      {"elasticity", "save, and resume on any other grid"},
      {"curriculum_learning", "set_train_batch_size and set_batch_fn change"},
      {"data_efficiency", "give the engine a data source that samples so"},
      {"compression_training", "export the weights and compress them elsewhere"},
      {"progressive_layer_drop", "a layer that leaves itself out"},
      {"eigenvalue", "compression_training"},
      {"sparse_attention", "write a layer with the pattern"},
      {"autotuning", "penstock-train --plan"},
      {"hybrid_engine", "eval_batch"},
      {"nebula", "written by Penstock itself"},
      {"compile", "nothing is compiled while a run lasts"},
      {"amp", ""},
  };
  for (const auto& [name, reason] : sections) {
    SCOPED_TRACE(name);
    for (const std::string off : {"{}", R"({"enabled": false, "other": [1]})", "null"}) {
      EXPECT_NO_THROW(parse_config("{\"" + name + "\": " + off + "}", "test"));
    }
    for (const std::string on : {R"({"enabled": true})", R"({"other": 1})"}) {
      const std::string error = config_error("{\"" + name + "\": " + on + "}");
      EXPECT_HAS(error, "test.json, line 1: " + name + ": this section is not available");
      EXPECT_HAS(error, reason);
      EXPECT_HAS(error, "leave the key out or set its \"enabled\" to false");
    }
    EXPECT_HAS(config_error("{\"" + name + "\": true}"), name + ": expected object, got true");
  }
}

}  // namespace
}  // namespace penstock::engine
