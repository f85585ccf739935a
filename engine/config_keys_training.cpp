#include "engine/config_keys.h"

namespace penstock::engine {

namespace {

constexpr KeyRow kRows[] = {
    supported("train_batch_size", kInt, "", at_least(1),
              "Samples per optimizer step over all replicas. Two of the three batch keys give the "
              "third; see \"Batch arithmetic\"."),
    supported("train_micro_batch_size_per_gpu", kInt, "", at_least(1),
              "Samples of one micro batch of one replica."),
    supported("gradient_accumulation_steps", kInt, "", at_least(1),
              "Micro batches per step and replica: what the pipeline schedule calls M; at most a "
              "million."),
    supported("gradient_clipping", kNumber, "1.0", at_least(0),
              "Largest global L2 norm of the gradients; 0 turns clipping off."),
    supported("non_finite_gradients", kString, "\"skip\"", one_of("skip|stop"),
              "When a gradient is infinite or NaN, all ranks skip the update, or all stop with an "
              "error. Penstock only."),
    supported("frozen_parameters", kRegexList, "[]", any(),
              "Parameters that are not trained: a regular expression found anywhere in the name "
              "freezes it. Penstock only."),
    supported("seed", kInt, "1234", at_least(0),
              "Seed of initial weights, dropout and data order, whatever the grid. Penstock "
              "only."),
    off_only("gradient_allreduce_op", kString, "\"mean\"", one_of("mean", "sum"),
             "gradients are averaged by the weights of their micro batches"),
    off_only("prescale_gradients", kBool, "false", any(),
             "the loss gradient is scaled once, at its source"),
    off_only("gradient_predivide_factor", kNumber, "1.0", any(),
             "the loss gradient is scaled once, at its source"),
    off_only("sparse_gradients", kBool, "false", any(), "all gradients are dense"),
    off_only("disable_allgather", kBool, "false", any(), "there is no other collective to use"),
    off_only("managed_gradient_accumulation", kBool, "true", any(),
             "the schedule owns gradient accumulation"),
    hint("dataloader_drop_last", kBool, "false", any(),
         "a step runs only when all its micro batches are there; what the data source still holds "
         "at its end is never half used"),
    hint("vocabulary_size", kInt, "", at_least(1), "the model states its own vocabulary"),
};

}  // namespace

KeyChapter training_keys() {
  return {"Training", "", kRows};
}

}  // namespace penstock::engine
