#include "tools/train/session.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/debris.h"
#include "checkpoint/inspect.h"
#include "engine/engine.h"
#include "engine/run_folder.h"
#include "engine/trace.h"
#include "model/data/prefetch_source.h"
#include "model/data/repeating_source.h"
#include "tools/train/data_choice.h"
#include "tools/train/model_choice.h"
#include "tools/train/run_record.h"
#include "tools/train/usage_error.h"

namespace penstock::tools {

namespace {

// Pass after pass; shuffled when a seed is given.
std::unique_ptr<model::DataSource> endless(const DataChoice& data, const ModelConfig& model,
                                           std::optional<std::uint64_t> shuffle_seed) {
  return std::make_unique<model::RepeatingSource>(open_data(data, model, shuffle_seed));
}

// The shapes of the weights do not tell, for example, the number of heads.
void check_same_model(const std::string& tag, const ModelConfig& saved, const ModelConfig& mine) {
  if (same_model(saved, mine)) return;
  throw tensor::InvalidArgument("[train] checkpoint " + tag +
                                " is of another model; it was saved with\n" + model_text(saved) +
                                "\nbut --model is\n" + model_text(mine));
}

class Session {
 public:
  Session(comm::World& world, const TrainOptions& options, const engine::Config& config,
          tensor::Log& log)
      : world_(world),
        options_(options),
        log_(log),
        model_(choose_model(options.model)),
        record_{model_.config, data_facts(options.data.files)},
        checkpoints_(std::filesystem::path(options.run) / "checkpoints"),
        engine_(world, model_.module, config, endless(options.data, model_.config, config.seed),
                {.log = &log, .total_steps = options.steps}) {
    engine_.measure_memory();  // for the report at the end
    check_log_filter();
    if (!config.optimizer && !options.resume) {
      throw tensor::InvalidArgument(
          "[train] the configuration has no \"optimizer\", without which nothing is trained; add "
          "one");
    }
    if (!options.export_weights.empty()) {
      check_exportable(model_);
      if (world.rank() == 0) prepare_export(options.export_weights, options.run);
    }
    if (!options.eval_data.files.empty()) {
      // Unlike its own source, the engine does not read this one ahead.
      eval_source_ = std::make_unique<model::PrefetchSource>(
          endless(options.eval_data, model_.config, std::nullopt));
    }
  }

  void run() {
    begin();
    if (nothing_to_train()) {
      evaluate();
    } else {
      train_to_end();
    }
    if (!options_.export_weights.empty()) {
      const comm::LongWaits waits(world_, engine_.config().checkpoint.timeout_seconds);
      export_weights(world_, checkpoints_, resumed_tag_, model_, options_.export_weights);
      world_.all().barrier().wait();
      say("weights exported to " + options_.export_weights);
    }
    engine_.close();
  }

 private:
  void train_to_end() {
    const std::int64_t trace_step = options_.trace_step > 0 ? options_.trace_step : options_.steps;
    while (engine_.global_steps() < options_.steps) {
      const std::int64_t step = engine_.global_steps() + 1;
      if (step == trace_step) {
        traced_step();
      } else {
        note(engine_.train_batch());
      }
      if (due(step, options_.eval_every)) evaluate();
      if (due(step, options_.save_every)) save();
    }
    engine_.finish_save();
    report();
  }

  // Only a resumed run may have all its steps behind it. It leaves the run folder as it is.
  bool nothing_to_train() const { return saved_step_ >= options_.steps; }

  void begin() {
    // A folder to go on in must be there; that it is missing is said by the load.
    const bool takes_folder = !options_.resume || std::filesystem::is_directory(options_.run);
    if (world_.rank() == 0 && takes_folder) enter_folder();
    if (options_.resume) {
      const std::string& tag = *options_.resume;
      const engine::LoadResult loaded =
          engine_.load_checkpoint(checkpoints_, tag.empty() ? std::nullopt : std::optional(tag),
                                  {.load_optimizer_states = !options_.fresh_optimizer});
      check_record(loaded);
      saved_step_ = engine_.global_steps();
      resumed_tag_ = loaded.tag;
      say("resumed from " + loaded.tag + " at step " + std::to_string(saved_step_));
      if (nothing_to_train()) {
        say("nothing to train: --steps " + std::to_string(options_.steps) +
            " counts from the run's beginning");
      }
    } else {
      leave_earlier_run();
    }
    if (!options_.resume && model_.weights) {
      const comm::LongWaits waits(world_, engine_.config().checkpoint.timeout_seconds);
      import_weights(engine_, model_);
      world_.all().barrier().wait();
      say("weights from " + model_.weights->string());
    }
    if (options_.trace_step > 0 && options_.trace_step <= engine_.global_steps()) {
      throw tensor::InvalidArgument("[train] --trace-step " + std::to_string(options_.trace_step) +
                                    " is before the resumed step; expected a later one");
    }
    if (world_.rank() != 0 || nothing_to_train()) return;
    folder_->begin_losses(engine_.global_steps());
    folder_->write("config.json", engine_.config().canonical_text);
    folder_->write("startup.txt", engine_.startup_report() + "\n");
    if (!engine_.config().steps_per_print) {
      say("losses go to " + (folder_->path() / "losses.csv").string() +
          "; set steps_per_print to see progress here");
    }
  }

  // Lines that are asked for from nowhere would be missed without a word.
  void check_log_filter() const {
    const auto check = [](const char* option, const std::vector<int>& wanted, int count,
                          const std::string& what) {
      for (const int number : wanted) {
        if (number >= 0 && number < count) continue;
        throw UsageError(std::string(option) + " is " + std::to_string(number) +
                         ", but there are " + std::to_string(count) + " " + what +
                         "; expected 0 to " + std::to_string(count - 1));
      }
    };
    check("--log-stages", options_.log.stages, engine_.stage_map().num_stages(), "stages");
    check("--log-replicas", options_.log.data_indices, engine_.grid().data_size(), "replicas");
  }

  // On rank 0. Whoever has the folder is alone with its checkpoints: what is unfinished there is
  // under way no more.
  void enter_folder() {
    folder_.emplace(options_.run);
    if (!folder_->alone()) return;
    for (const std::string& name : checkpoint::remove_debris(checkpoints_)) {
      say("removed " + (checkpoints_ / name).string() + ", left by a save that was cut short");
    }
  }

  // Whether there is anything to go on from, in whatever state.
  bool has_checkpoints() const {
    if (!std::filesystem::exists(checkpoints_)) return false;
    const checkpoint::DirectorySummary found = checkpoint::summarize(checkpoints_);
    return !found.latest.empty() ||
           std::ranges::any_of(found.tags, [](const checkpoint::TagSummary& tag) {
             return tag.state != checkpoint::TagState::kUnfinished;
           });
  }

  // A new run must not write over an earlier one, except one that left nothing to go on from.
  void leave_earlier_run() {
    if (!folder_) return;
    if (has_checkpoints()) {
      throw tensor::InvalidArgument("[train] the run folder " + options_.run +
                                    " holds an earlier run; go on with it by --resume, or choose "
                                    "another --run");
    }
    if (!folder_->used()) return;
    say("an earlier run in " + options_.run +
        " ended before its first checkpoint; this one begins anew, and its losses are kept in " +
        folder_->set_losses_aside().string());
  }

  void check_record(const engine::LoadResult& loaded) {
    const std::optional<RunRecord> saved = from_client_state(loaded.client_state);
    if (!saved) return;
    check_same_model(loaded.tag, saved->model, model_.config);
    if (saved->data.checksum == record_.data.checksum) return;
    say("since " + loaded.tag + " was saved: the data were " + saved->data.to_string() + ", are " +
            record_.data.to_string(),
        tensor::LogLevel::kWarning);
  }

  void traced_step() {
    engine::TraceRecorder trace;
    trace.start(world_);
    engine_.add_observer(trace);
    note(engine_.train_batch());
    engine_.remove_observer(trace);
    const comm::GridPosition place = engine_.grid().position(world_.rank());
    const std::string text = trace.finish(
        world_, engine_.stage_map().stages_of(schedule::PipeRank(place.pipe)),
        place.data * engine_.grid().model_size() + place.model);  // each of these is a pipe
    if (folder_) folder_->write("trace.json", text);
  }

  void note(const engine::TrainResult& result) {
    if (!folder_) return;
    folder_->append(result, engine_.global_samples());
    keep_schedule();
  }

  // What pipeline.schedule "auto" found, for people to look at and later runs to use.
  void keep_schedule() {
    const engine::FoundSchedule* found = engine_.found_schedule();
    if (found == nullptr || kept_schedule_ == *found) return;
    folder_->write("schedule.csv", found->table);
    folder_->write("costs.json", found->costs);
    kept_schedule_ = *found;
  }

  void evaluate() {
    if (eval_source_ == nullptr) return;
    eval_source_->seek(0);  // the same samples each time
    const engine::EvalResult result =
        engine_.eval_batch(*eval_source_, {.micro_batches = options_.eval_batches});
    say("step " + std::to_string(engine_.global_steps()) + ": evaluation loss " +
        std::to_string(result.loss.value()));
  }

  void save() {
    engine_.save_checkpoint(checkpoints_, "", {.client_state = to_client_state(record_)});
    resumed_tag_.reset();
    saved_step_ = engine_.global_steps();
    say("step " + std::to_string(saved_step_) + ": checkpoint " +
        (engine_.config().checkpoint.async ? "being saved in " : "saved in ") +
        checkpoints_.string());
  }

  void report() {
    const std::vector<engine::RankReport> ranks = engine_.rank_reports({.plan = true});
    const std::string text = engine::to_text(ranks);
    if (folder_) folder_->write("ranks.txt", text);
    say("the ranks in this run; bytes of buffers and tensors are the most at once:\n" + text);
  }

  // Every so many steps (0: never before the end), and at the end.
  bool due(std::int64_t step, std::int64_t every) const {
    return step == options_.steps || (every > 0 && step % every == 0);
  }

  void say(std::string message, tensor::LogLevel level = tensor::LogLevel::kInfo) {
    if (world_.rank() != 0) return;
    tensor::LogEvent event;
    event.level = level;
    event.message = std::move(message);
    event.rank = 0;
    log_.write(event);
  }

  comm::World& world_;
  const TrainOptions& options_;
  tensor::Log& log_;
  ModelChoice model_;
  RunRecord record_;
  std::filesystem::path checkpoints_;
  engine::Engine engine_;
  std::unique_ptr<model::DataSource> eval_source_;
  std::optional<engine::RunFolder> folder_;             // on rank 0, from the beginning
  std::optional<engine::FoundSchedule> kept_schedule_;  // in the folder
  std::int64_t saved_step_ = -1;
  std::optional<std::string> resumed_tag_;  // of what was resumed, until a newer one is saved
};

}  // namespace

void train(comm::World& world, const TrainOptions& options, const engine::Config& config,
           tensor::Log& log) {
  Session(world, options, config, log).run();
}

}  // namespace penstock::tools
