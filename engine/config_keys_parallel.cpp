#include "engine/config_keys.h"

namespace penstock::engine {

namespace {

constexpr std::string_view kWholeInputs =
    "the inputs of recomputed layers stay whole, in the rank's own memory";
constexpr std::string_view kByInterval =
    "pipeline.activation_checkpoint_interval says what is recomputed";

constexpr KeyRow kRows[] = {
    supported(
        "pipeline.stages", kInt | kAuto, "\"auto\"", between(1, 65536),
        "Ranks along the pipe, each of which owns one stage of the model, or "
        "pipeline.chunks of them; \"auto\" = 1. The other ranks are for tensor_parallel.size and "
        "replicas."),
    supported("pipeline.chunks", kInt, "", between(1, 65536),
              "Stages that each rank of the pipe owns; left out: as many as the schedule is made "
              "for, or 1. Penstock only."),
    supported("pipeline.stage_map", kString | kIntList, "", one_of("loop|v"),
              "Which rank owns which stage: \"loop\" (stages go round the ranks), \"v\" (up the "
              "ranks and back again), or a list with the rank of each stage, instead of "
              "pipeline.chunks; left out: what the schedule is made for. Penstock only."),
    supported("pipeline.partition", kString, "\"best\"", any(),
              "How layers are cut into stages: \"uniform\" (equal counts), \"parameters\" (equal "
              "trainable elements), \"type:REGEX\" (equal counts of layers whose class name "
              "contains a match, ignoring case), or \"best\" (parameters)."),
    supported(
        "pipeline.bounds", kIntList, "", at_least(0),
        "The cuts themselves instead of a partition: stage s has layers bounds[s] to "
        "bounds[s+1] − 1; as many rising numbers from 0 as there are stages, and one. Penstock "
        "only."),
    supported("pipeline.schedule", kString, "\"1f1b\"", any(),
              "The order of work in a step: the name of a schedule that trains, as "
              "`penstock-schedule list` shows them; \"file:PATH\", a table in PyTorch's CSV form, "
              "which is verified before anything runs; \"auto\", which measures the passes in the "
              "first steps and looks for the order of least time; or \"auto:PATH\", a table that "
              "was found so. Penstock only."),
    supported(
        "pipeline.cost_file", kString, "", any(),
        "With pipeline.schedule \"auto\": what passes cost, as JSON, such as costs.json of an "
        "earlier run, instead of measuring."),
    supported("pipeline.memory_limit", kInt, "", at_least(1),
              "With pipeline.schedule \"auto\": bytes of activations that each rank may hold. "
              "Penstock only."),
    hint("pipeline.seed_layers", kBool, "false", any(),
         "initial weights are always keyed by the layer's place in the model"),
    supported("pipeline.activation_checkpoint_interval", kInt | kAuto, "0", at_least(0),
              "As many layers of a stage, from its first on, are kept as their inputs until their "
              "backward, which runs them again; 0: none. LayerSpec::recompute chooses by layer."),
    hint("pipeline.use_reentrant", kBool, "true", any(), "there is one way to record operations"),
    supported("pipeline.pipe_partitioned", kBool, "true", any(),
              "With tensor_parallel.size above 1: a rank sends its part of an activation that all "
              "ranks of its model group have, not all of it."),
    supported("pipeline.grad_partitioned", kBool, "true", any(),
              "Likewise for the gradients of activations."),
    supported(
        "tensor_parallel.size", kInt, "1", between(1, 65536),
        "Ranks that share the work of every layer that can be split (docs/tensor-parallel.md). "
        "Penstock only."),
    supported(
        "tensor_parallel.sequence_parallel", kBool, "false", any(),
        "Between the parts of a layer that are split, each of these ranks has its own part of "
        "every sequence alone. Penstock only."),
    off_only("activation_checkpointing.partition_activations", kBool, "false", any(), kWholeInputs),
    off_only("activation_checkpointing.cpu_checkpointing", kBool, "false", any(), kWholeInputs),
    off_only("activation_checkpointing.contiguous_memory_optimization", kBool, "false", any(),
             kWholeInputs),
    off_only("activation_checkpointing.number_checkpoints", kInt, "", at_least(1), kByInterval),
    off_only("activation_checkpointing.synchronize_checkpoint_boundary", kBool, "false", any(),
             "nothing has to wait at the border of what is recomputed"),
    off_only("activation_checkpointing.profile", kBool, "false", any(),
             "wall_clock_breakdown shows where the time goes"),
    supported("communication.backend", kString, "\"auto\"", one_of("auto|local|mpi", "nccl|gloo"),
              "Ranks as threads of one process (local) or as processes (mpi); auto = mpi under "
              "mpirun, else local. Penstock only."),
    supported("communication.timeout_seconds", kNumber, "300.0", above(0),
              "Longest wait for another rank before the run fails. Penstock only."),
    supported("device.type", kString, "\"cpu\"", one_of("cpu|cuda"),
              "Where the model computes: on the CPU, or on the NVIDIA device that the rank's place "
              "among the ranks of its host chooses (docs/devices.md). Penstock only."),
    supported("device.sharing", kBool, "false", any(),
              "Ranks of one host may share a device. Penstock only."),
    supported("device.tf32", kBool, "false", any(),
              "On a device, products of f32 may round their factors to 10 bits of mantissa. "
              "Penstock only."),
    supported("device.graphs", kBool, "false", any(),
              "On a device, passes whose shapes come again are captured as CUDA graphs and "
              "replayed (docs/devices.md). Penstock only."),
    supported("device.transport", kString, "\"auto\"", one_of("auto|nccl|staged"),
              "How tensors of a device travel: through NCCL, or staged through host memory; auto = "
              "NCCL where each rank has a device of its own, else staged. Penstock only."),
    supported("threads_per_rank", kInt, "", between(1, 4096),
              "Threads inside one rank's operations; left out: cores ÷ ranks on the host, at "
              "least 1. Penstock only."),
};

}  // namespace

KeyChapter parallel_keys() {
  return {"Pipeline, communication and devices", "", kRows};
}

}  // namespace penstock::engine
