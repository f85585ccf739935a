// Engine: trains and evaluates a module over a pipe × data × model grid, as its configuration
// says.
//
//   comm::run_local(4, {}, [&](comm::World& world) {
//     engine::Engine engine(world, module, config, make_source());
//     for (int step = 0; step < 100; ++step) engine.train_batch();
//     engine.save_checkpoint("checkpoints");
//     engine.close();
//   });
//
// Every rank makes the same calls in the same order; each begins with a vote, and when one rank
// cannot go on, all throw the same error before anything changed. An Engine belongs to its rank's
// thread. It never prints: it writes to the Log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/grid.h"
#include "comm/world.h"
#include "engine/batch_config.h"
#include "engine/batch_function.h"
#include "engine/checkpoint_options.h"
#include "engine/config.h"
#include "engine/errors.h"
#include "engine/eval.h"
#include "engine/executor.h"
#include "engine/found_schedule.h"
#include "engine/measured_memory.h"
#include "engine/memory_plan.h"
#include "engine/observer.h"
#include "engine/rank_report.h"
#include "engine/whole_batch.h"
#include "model/data_source.h"
#include "model/module.h"
#include "model/stage.h"
#include "schedule/schedule.h"
#include "schedule/stage_map.h"
#include "tensor/log.h"

namespace penstock::engine {

struct TrainResult {
  std::int64_t step = 0;  // of this batch, from 1
  double loss = 0.0;      // weighted mean over micro batches and replicas; the same on all ranks
  double replica_loss = 0.0;         // weighted mean over the micro batches of this replica
  std::vector<double> micro_losses;  // of this replica, by micro batch; on every rank of its pipe
  // The named extra losses (model::LossResult::extras), averaged as the loss is.
  std::map<std::string, double> extras;
  std::map<std::string, std::vector<double>> micro_extras;  // as micro_losses
  double grad_norm = 0.0;                                   // global, before clipping
  bool skipped = false;     // the norm was not finite; nothing was updated
  std::vector<double> lr;   // of each parameter group, as applied to this update
  double loss_scale = 1.0;  // in force in this step; moves with fp16 only
  // Of step() alone, when asked for, on ranks with the last stage: the outputs of the last layer,
  // those of all micro batches of this replica merged.
  std::vector<tensor::Tensor> outputs;
};

// Makes the training stream of one rank of a pipe.
using ScheduleFactory =
    std::function<std::unique_ptr<schedule::Schedule>(const schedule::ScheduleArgs&)>;

struct EngineOptions {
  tensor::Log* log = nullptr;    // borrowed; null: events are dropped
  std::int64_t total_steps = 0;  // for the time left in progress lines; 0: unknown
  // A schedule of the trainer's own, instead of pipeline.schedule. Called on every rank for all
  // ranks of the pipe; what it makes is verified before anything is built.
  ScheduleFactory schedule = nullptr;
};

class Engine {
 public:
  // Collective. Checks everything first, then builds this rank's stages. The module is copied; the
  // source may be null, and is only asked on ranks that own the first or the last stage, of a model
  // group on rank 0, which gives the others what it read; there from a thread of its own too
  // (dataloader_prefetch). Throws ConfigError, ScheduleError or CallRefused, on every rank alike.
  Engine(comm::World& world, model::Module module, Config config,
         std::unique_ptr<model::DataSource> data = nullptr, const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // --- collective calls
  // One optimizer step over train_batch_size samples. Throws EndOfData, CallRefused,
  // NonFiniteError; ExecutionError or PeerLost when the step failed half-way, after which only
  // destruction is allowed.
  TrainResult train_batch();
  // The same from another source, which becomes the engine's: borrowed until the next set_data().
  // Reads from its position, which moves past what was used, or stays when the call is refused.
  TrainResult train_batch(model::DataSource& data);
  // Forward only; weights, optimizer, counters, the training source and random numbers stay as they
  // are. The source is read from its position, which moves past what was used, or stays when the
  // call throws. Needs no optimizer.
  EvalResult eval_batch(model::DataSource& data, const EvalOptions& options = {});
  // train_batch and eval_batch on a batch that is given, cut into the micro batches of the step or
  // cut already; neither a source nor the batch function is asked. Each replica is given its own,
  // of any number of samples, which data_position() does not count. Ranks that have no use for it
  // may give none; of a model group the first rank gives it for all. Throws CallRefused when a rank
  // was given what cannot be, or ranks of a replica unlike batches. Of a MicroBatch, ids are not
  // looked at; EvalOptions::rows must be 0.
  TrainResult step(const WholeBatch& batch = {}, const StepOptions& options = {});
  TrainResult step(const std::vector<model::MicroBatch>& micro_batches,
                   const StepOptions& options = {});
  EvalResult eval_step(const WholeBatch& batch = {}, const EvalOptions& options = {});
  EvalResult eval_step(const std::vector<model::MicroBatch>& micro_batches,
                       const EvalOptions& options = {});
  // Changes the number of micro batches of the coming steps, and all that follows from it; the size
  // of a micro batch stays. With pipeline.schedule "auto" a schedule for them is searched with the
  // costs that are known; one that is read from a file serves no other number. A size that is not
  // possible changes nothing: CallRefused or ConfigError on every rank. A checkpoint keeps the
  // size: a run that loads it goes on with it, unless it is configured for another one than the run
  // that saved it was.
  void set_train_batch_size(std::int64_t train_batch_size);
  // Commits a checkpoint; tag "" means global_stepN. Throws FileError or CallRefused, the same on
  // every rank, and the engine goes on as if nothing had been asked.
  //
  // Asynchronous (SaveOptions::async, checkpoint.async): returns once the state is copied, into
  // memory that the engine keeps for the next save. A thread writes the copy. Rank 0 commits when a
  // later collective call finds every rank done; what failed is thrown by the next collective call
  // on every rank, which then has done nothing else. Only one save is under way: saving again,
  // loading and close() wait for it, and throw what it failed with. An engine that is destroyed
  // without close() gives it up; what was there before still loads.
  void save_checkpoint(const std::filesystem::path& directory, const std::string& tag = "",
                       const SaveOptions& options = {});
  // Waits until no save is under way. Throws what it failed with.
  void finish_save();
  // Takes over a checkpoint of any grid; without a tag the one that `latest` names.
  // What does not fit the model is a FileError or CallRefused, the same on every rank, before
  // anything changed; LoadOptions can allow for it.
  LoadResult load_checkpoint(const std::filesystem::path& directory,
                             const std::optional<std::string>& tag = std::nullopt,
                             const LoadOptions& options = {});
  // Writes the weights alone, under their logical names, as safetensors into a folder:
  // model.safetensors, or a file for each rank that holds some and model.safetensors.index.json,
  // which Hugging Face's readers know. The folder is made anew, at once, when all is written; one
  // that holds anything else is refused. Replicas and pipe ranks share no file.
  void save_module(const std::filesystem::path& folder);
  // Reads weights alone from such a folder, or a file; floating dtypes are converted. Everything
  // else stays as it is. Errors as for load_checkpoint.
  LoadModuleResult load_module(const std::filesystem::path& path,
                               const LoadModuleOptions& options = {});
  // What every rank has done so far, by rank; the same on all of them.
  std::vector<RankReport> rank_reports(const ReportOptions& options = {});
  // Ends the engine in order: waits for a save under way, then closes the communicators; afterwards
  // throws what the save failed with. Not called after a failure.
  void close();

  // --- local calls
  // Replaces the source; this one is read ahead as the first one was. The next step begins at its
  // position, which is data_position() from then on; it must be the same on all ranks that load.
  // Throws InvalidArgument for an empty one.
  void set_data(std::unique_ptr<model::DataSource> data);
  // Called on every rank that loads, for each micro batch that it fetches, in training and
  // evaluation; must do the same to the same data on all of them. What it throws refuses the call
  // on all ranks. Null: none.
  void set_batch_fn(BatchFunction function);
  // To be called when weights were written from outside after the engine was built, on every rank:
  // with weights of 16 bits the f32 masters begin anew from them. Before the first step, and for
  // what load_checkpoint or load_module reads, there is no need to.
  void weights_written();
  // Observers see every instruction; borrowed until removed.
  void add_observer(Observer& observer);
  void remove_observer(Observer& observer);
  void replace_handler(schedule::Opcode opcode, HandlerOverride handler);

  // Whether this rank owns the first, the last stage of the model.
  bool is_first_stage() const;
  bool is_last_stage() const;
  // Whether this rank asks the source, for inputs or for labels: of a model group only the first.
  bool loads_data() const;
  const comm::Grid& grid() const;
  const Config& config() const;
  const BatchTriple& batch() const;  // as of the next step
  // Which pipe rank owns which stage, and the cuts of the model into these stages, in layers.
  const schedule::StageMap& stage_map() const;
  std::span<const std::int64_t> bounds() const;
  // This rank's stages, by chunk.
  std::span<const std::unique_ptr<model::Stage>> stages();

  std::int64_t global_steps() const;    // train_batch calls that were committed
  std::int64_t skipped_steps() const;   // of those, with a norm that was not finite
  std::int64_t global_samples() const;  // samples of committed steps
  std::int64_t data_position() const;   // where the next step begins in the order of samples
  std::vector<double> lr() const;       // of each group, for the coming update
  const tensor::MemoryCounters& memory() const;
  // What pipeline.schedule "auto" runs since it was found; null before, and with other schedules.
  const FoundSchedule* found_schedule() const;
  // What this rank will need for training, for micro batches shaped like the example, of which
  // nothing but shapes and dtypes is looked at; and for an evaluation.
  RankMemory planned_memory(const model::MicroBatch& example) const;
  RankMemory planned_eval_memory(const model::MicroBatch& example,
                                 const EvalOptions& options = {}) const;
  // Measures pipe buffers in the streams from now on; begins anew when called again. Until the
  // first call nothing is measured, and all is 0.
  void measure_memory(SendTiming timing = SendTiming::kMeasured);
  const MeasuredMemory& measured_memory() const;
  // Batch sizes; layers and parameters of every stage: the same text on all ranks.
  const std::string& startup_report() const;

  // --- what is not there: these do not compile, since passes are instructions of the stream
  template <class... Args>
  void forward(Args&&...) {
    static_assert(kNever<Args...>,
                  "Engine has no forward(): train_batch(), or eval_batch() for outputs without "
                  "training, runs the passes of all micro batches; step() and eval_step() take a "
                  "batch instead of a source");
  }
  template <class... Args>
  void backward(Args&&...) {
    static_assert(
        kNever<Args...>,
        "Engine has no backward(): train_batch(), or step() with a batch, runs the passes "
        "of all micro batches and updates the weights");
  }

 private:
  template <class...>
  static constexpr bool kNever = false;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::engine
