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
    supported("dataloader_drop_last", kBool, "false", any(),
              "Of a source that repeats its samples: true leaves out what does not fill a whole "
              "step at the end of each pass; false lets a step reach over the end into the next "
              "pass. At the end of a source that does not repeat, an incomplete step never runs."),
    supported("dataloader_prefetch", kBool, "true", any(),
              "While a step runs, a thread of its own reads the micro batches of the next one from "
              "the source that was given to the engine. false: for a source whose samples do not "
              "follow from the position alone, or that shares what is not safe to use from two "
              "threads. A source that is lent for one call is never read ahead. Penstock only."),
    supported("gradient_allreduce_op", kString, "\"mean\"", one_of("mean|sum"),
              "Over replicas: their mean, weighted as the losses are, or that times the number of "
              "replicas."),
    supported("prescale_gradients", kBool, "false", any(),
              "Gradients are divided by the number of replicas before they are summed, as they "
              "are here by default: the loss gradient is scaled once, at its source."),
    supported("gradient_predivide_factor", kNumber, "1.0", above(0),
              "Without prescale_gradients: a factor f other than 1 has gradients divided by it "
              "before they are summed, and by replicas ÷ f after; for sums in 16 bits."),
    off_only("sparse_gradients", kBool, "false", any(), "all gradients are dense"),
    off_only("disable_allgather", kBool, "false", any(), "there is no other collective to use"),
    off_only("managed_gradient_accumulation", kBool, "true", any(),
             "the schedule owns gradient accumulation"),
    hint("vocabulary_size", kInt, "", at_least(1), "the model states its own vocabulary"),
};

}  // namespace

KeyChapter training_keys() {
  return {"Training", "", kRows};
}

}  // namespace penstock::engine
