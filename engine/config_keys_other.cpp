#include "engine/config_keys.h"

namespace penstock::engine {

namespace {

constexpr std::string_view kFolder =
    "The files lie in the folder output_path/job_name, which is made; a relative one begins where "
    "rank 0 was started.";
constexpr std::string_view kJobName = "The last part of that folder; another one for each run.";

constexpr KeyRow kMonitorRows[] = {
    supported(
        "steps_per_print", kInt, "", at_least(1),
        "A progress line every so many steps, with the samples per second since the last line "
        "and, in brackets, over the run; time outside `train_batch` and the first two steps "
        "do not count. Left out: none."),
    supported("wall_clock_breakdown", kBool, "false", any(),
              "With each progress line, where the time went since the last one: means in "
              "milliseconds, of a pass and of a step, one rank of each stage (that of the first "
              "replica). With each point of a monitor, the times of that step on rank 0."),
    supported("memory_breakdown", kBool, "false", any(),
              "With each progress line, the tensors of one rank of each stage: what lives now, for "
              "what, and the most that ever lived."),
    supported("dump_state", kBool, "false", any(),
              "At the start, the whole configuration, and all layers with their stages."),
    supported("log_level", kString, "", one_of("debug|info|warning|warn|error|critical"),
              "The engine writes no event of a lower level to the trainer's log; critical is "
              "error. Left out: all are written."),
    supported(
        "csv_monitor.enabled", kBool | kAuto, "false", any(),
        "One CSV file per metric: `Train/Samples/lr` in `Train_Samples_lr.csv` with the header "
        "`step,lr`."),
    supported("csv_monitor.output_path", kString | kAuto, "\"\"", any(), kFolder),
    supported("csv_monitor.job_name", kString | kAuto, "\"DeepSpeedJobName\"", any(), kJobName),
    supported("tensorboard.enabled", kBool | kAuto, "false", any(),
              "Event files for TensorBoard's scalars: `tensorboard --logdir output_path`."),
    supported("tensorboard.output_path", kString | kAuto, "\"\"", any(), kFolder),
    supported("tensorboard.job_name", kString | kAuto, "\"DeepSpeedJobName\"", any(), kJobName),
};

constexpr std::string_view kMonitorIntro =
    "A monitor writes on rank 0, over the number of samples trained on: "
    "`Train/Samples/train_loss`, "
    "`lr` (of the last parameter group) and `grad_norm` after each step, `eval_loss` after each "
    "`eval_batch`; with them `train_loss_NAME` and `eval_loss_NAME` for each named extra loss; "
    "with "
    "`wall_clock_breakdown` also `elapsed_time_ms_forward`, `_backward`, `_backward_inner`, "
    "`_backward_allreduce` and `_step`.\n"
    "\n"
    "A series never goes back. A run that begins at *S* samples, 0 or those of the checkpoint that "
    "was loaded, ends what an earlier run wrote into the same folder at *S*: the CSV files lose "
    "their later points and go on (the whole file stays as `.csv.old`); TensorBoard gets a new "
    "file "
    "with a mark from which it drops the later points of the older ones.\n"
    "\n"
    "A folder that cannot be made or written is an error before the first step. When a monitor "
    "cannot write later, a full disk say, a warning in the log names the file, training goes on, "
    "and each later point is tried again; no half of a point stays in a file.";

constexpr std::string_view kOtherMonitors = "csv_monitor and tensorboard write the same series";

constexpr KeyRow kOtherRows[] = {
    off_only("wandb", kObject, "", any(), kOtherMonitors),
    off_only("comet", kObject, "", any(), kOtherMonitors),
    off_only("flops_profiler", kObject, "", any(),
             "no operations are counted; wall_clock_breakdown and a trace say where the time goes"),
    off_only("comms_logger", kObject, "", any(),
             "Engine::rank_reports says what each rank sent and how long it waited"),
    off_only("elasticity", kObject, "", any(),
             "the ranks of a run stay the same; save, and resume on any other grid"),
    off_only("curriculum_learning", kObject, "", any(),
             "set_train_batch_size and set_batch_fn change batches and sequences at any step"),
    off_only("data_efficiency", kObject, "", any(),
             "the order of samples is the source's; give the engine a data source that samples so"),
    off_only("compression_training", kObject, "", any(),
             "weights are trained whole; export the weights and compress them elsewhere"),
    off_only("quantize_training", kObject, "", any(),
             "weights are trained whole; export the weights and compress them elsewhere"),
    off_only("progressive_layer_drop", kObject, "", any(),
             "every layer runs in every pass; write a layer that leaves itself out"),
    off_only("eigenvalue", kObject, "", any(), "it serves compression_training alone"),
    off_only("sparse_attention", kObject, "", any(),
             "attention is dense; write a layer with the pattern"),
    off_only("autotuning", kObject, "", any(),
             "penstock-train --plan says what fits, and pipeline.schedule \"auto\" looks for the "
             "fastest order"),
    off_only("hybrid_engine", kObject, "", any(),
             "there is no second engine for inference; eval_batch runs forward alone"),
    off_only("nebula", kObject, "", any(), "checkpoints are written by Penstock itself"),
    off_only("compile", kObject, "", any(), "nothing is compiled while a run lasts"),
    off_only("sequence_parallel_size", kInt, "1", at_least(1),
             "sequences are split with layers only: tensor_parallel.sequence_parallel"),
    hint("seq_parallel_communication_data_type", kString, "", any(),
         "sequences are split with layers only: tensor_parallel.sequence_parallel"),
    hint("use_data_before_expert_parallelism", kBool, "false", any(), "there are no experts"),
    hint("graph_harvesting", kBool, "false", any(), "operations are not captured in graphs"),
    hint("timers", kObject, "", any(), "throughput is always measured"),
    hint("aio", kObject, "", any(), "no state is kept on disks"),
};

}  // namespace

KeyChapter monitor_keys() {
  return {"Monitors and reports", kMonitorIntro, kMonitorRows};
}

KeyChapter other_keys() {
  return {
      "Other sections of DeepSpeed",
      "A section is accepted empty or with `\"enabled\": false`, whatever else it holds; refused "
      "otherwise.",
      kOtherRows};
}

}  // namespace penstock::engine
