#include "engine/config_keys.h"

namespace penstock::engine {

namespace {

constexpr KeyRow kRows[] = {
    supported("checkpoint.keep_last", kInt, "", between(1, 1000000),
              "Delete all but the newest so many checkpoints after a save; left out: keep all. "
              "Penstock only."),
    supported("checkpoint.timeout_seconds", kNumber, "3600.0", above(0),
              "Longest wait for a rank that is busy with the disk while a checkpoint is saved or "
              "loaded; communication.timeout_seconds where that is longer. Penstock only."),
    supported("checkpoint.async", kBool, "false", any(),
              "A save returns once the state is copied, and is written beside the training. "
              "Penstock only."),
    supported("checkpoint.tag_validation", kString, "\"Warn\"", one_of("Ignore|Warn|Fail"),
              "Ranks that save under different tags: all take that of rank 0, the same with a "
              "warning, or an error."),
    hint("checkpoint.load_universal", kBool, "false", any(), "any grid loads any checkpoint"),
    off_only("checkpoint.use_node_local_storage", kBool, "false", any(),
             "a checkpoint lies in one folder that all ranks see"),
    hint("checkpoint.parallel_write.pipeline_stage", kBool, "false", any(),
         "the writers are chosen by the format"),
    hint("checkpoint.checkpoint_serialization", kBool, "true", any(),
         "the files are safetensors, always"),
    off_only("checkpoint.writer", kObject, "", any(), "there is one writer"),
};

}  // namespace

KeyChapter checkpoint_keys() {
  return {"Checkpoint", "", kRows};
}

}  // namespace penstock::engine
