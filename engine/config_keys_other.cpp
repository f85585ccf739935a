#include "engine/config_keys.h"

namespace penstock::engine {

namespace {

constexpr std::string_view kNoMonitor = "the run folder's losses.csv and trace are what is written";
constexpr std::string_view kMonitorOff = "belongs to a monitor that is off";
constexpr std::string_view kNoTimers = "a trace of a step shows where its time goes";

constexpr KeyRow kMonitorRows[] = {
    off_only("tensorboard.enabled", kBool | kAuto, "false", any(), kNoMonitor),
    hint("tensorboard.output_path", kString | kAuto, "\"\"", any(), kMonitorOff),
    hint("tensorboard.job_name", kString | kAuto, "\"DeepSpeedJobName\"", any(), kMonitorOff),
    off_only("csv_monitor.enabled", kBool | kAuto, "false", any(), kNoMonitor),
    hint("csv_monitor.output_path", kString | kAuto, "\"\"", any(), kMonitorOff),
    hint("csv_monitor.job_name", kString | kAuto, "\"DeepSpeedJobName\"", any(), kMonitorOff),
    off_only("wall_clock_breakdown", kBool, "false", any(), kNoTimers),
    off_only("memory_breakdown", kBool, "false", any(), "memory is not reported per step"),
    off_only("dump_state", kBool, "false", any(), "the start-up report shows the engine's state"),
};

constexpr std::string_view kOutOfScope = "not part of Penstock";

constexpr KeyRow kOtherRows[] = {
    off_only("wandb", kObject, "", any(), kOutOfScope),
    off_only("comet", kObject, "", any(), kOutOfScope),
    off_only("flops_profiler", kObject, "", any(), kOutOfScope),
    off_only("comms_logger", kObject, "", any(), kOutOfScope),
    off_only("elasticity", kObject, "", any(), kOutOfScope),
    off_only("curriculum_learning", kObject, "", any(), kOutOfScope),
    off_only("data_efficiency", kObject, "", any(), kOutOfScope),
    off_only("compression_training", kObject, "", any(), kOutOfScope),
    off_only("progressive_layer_drop", kObject, "", any(), kOutOfScope),
    off_only("eigenvalue", kObject, "", any(), kOutOfScope),
    off_only("sparse_attention", kObject, "", any(), kOutOfScope),
    off_only("autotuning", kObject, "", any(), kOutOfScope),
    off_only("hybrid_engine", kObject, "", any(), kOutOfScope),
    off_only("nebula", kObject, "", any(), kOutOfScope),
    off_only("compile", kObject, "", any(), kOutOfScope),
    hint("aio", kObject, "", any(), "no state is kept on disks"),
};

}  // namespace

KeyChapter monitor_keys() {
  return {"Monitors and reports", "", kMonitorRows};
}

KeyChapter other_keys() {
  return {"Other sections of DeepSpeed",
          "Accepted empty or with `\"enabled\": false`, whatever else they hold; refused "
          "otherwise.",
          kOtherRows};
}

}  // namespace penstock::engine
