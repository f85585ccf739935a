// What is behind Engine; shared by the engine_*.cpp files.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/activation_meter.h"
#include "engine/async_save.h"
#include "engine/batch_split.h"
#include "engine/call_clock.h"
#include "engine/cost_meter.h"
#include "engine/device_observers.h"
#include "engine/engine.h"
#include "engine/engine_json.h"
#include "engine/found_schedule.h"
#include "engine/load_plan.h"
#include "engine/memory_meter.h"
#include "engine/monitors.h"
#include "engine/rank_state.h"
#include "engine/step_timers.h"
#include "engine/throughput.h"
#include "engine/vote.h"
#include "model/data/prefetch_source.h"
#include "model/partition.h"

namespace penstock::engine {

struct Engine::State {
  State(comm::World& rank_world, model::Module module, Config run_config,
        std::unique_ptr<model::DataSource> given, const EngineOptions& engine_options);

  // --- construction, in this order (engine_build.cpp)
  // Makes the training stream, and throws what is wrong with config and module before anything is
  // built. Returns the cuts into stages.
  model::Bounds plan(const model::Module& module);
  model::ModelAxis model_axis() const;
  void build_stages();  // this rank's layers and optimizer state
  void build_graphs();
  // Throws ConfigError for a training stream that leaves the module's ties out.
  static void require_tied_reduction(const schedule::Schedule& stream, const model::Module& module);
  // Of config, schedule and module.
  std::uint64_t identity_with(std::uint64_t schedule_identity, const model::Module& module) const;

  // --- pipeline.schedule "auto" (engine_auto.cpp)
  // Before a training step: measures it, or changes over to what was found. Collective when it
  // changes over, at the same step on every rank.
  void begin_probing();
  void end_probing();  // after the step
  void find_schedule();
  // Takes over the schedule of a checkpoint, when it is one for this run.
  void restore_schedule(const std::optional<FoundSchedule>& saved);
  // Makes the training stream that config and found ask for.
  void adopt_schedule();

  // --- the step protocol (engine_step.cpp)
  TrainResult train(model::DataSource* given);  // given: null, or what replaces the source
  TrainResult train_from(model::DataSource* given);
  EvalResult evaluate(model::DataSource& from, const EvalOptions& options);
  // The parts of a training call, named `call` in errors: what comes before its micro batches are
  // known, and what comes after the vote, up to the result.
  void begin_training(const char* call);
  TrainResult run_training(const char* call);
  // Throws NonFiniteError when a step without an update ends the run.
  void require_to_go_on(const char* call, const UpdateResult& update) const;
  TrainResult train_result();  // takes the outputs out of rank.batch
  // The same of an evaluation.
  void begin_evaluation(const EvalOptions& options);
  EvalResult run_evaluation();
  EvalResult eval_result();  // takes the outputs out of rank.batch
  // Gets micro batches and votes; leaves them in rank.batch. `load` puts them there and fills in
  // what this rank brings to the vote; what it throws refuses the call. Returns where the batch
  // begins in the data.
  std::int64_t prepare(CallKind kind, const std::function<void(Ballot&)>& load);
  // Fetches what this rank needs from the source.
  void fetch_from(model::DataSource* from, std::int64_t position, Ballot& mine);
  void weigh();         // the fetched micro batches, by the loss, on the last stage
  void count_tokens();  // of a sample, on the first stage
  void sum_weights();   // over replicas
  // Runs the stream; afterwards a failure leaves the engine unusable.
  void run_stream(const schedule::Schedule& schedule);
  void wait_for_device();
  // Fills in mean losses and outputs, and tells the losses to all stages.
  void share_results();
  // Micro batches of an evaluation, per replica.
  int eval_micro_batches(const EvalOptions& eval_options) const;

  // --- batches given at once (engine_whole_batch.cpp)
  TrainResult step(const GivenBatch& given, const StepOptions& options);
  EvalResult eval_step(const GivenBatch& given, const EvalOptions& options);
  void prepare_given(CallKind kind, const GivenBatch& given);
  // After the vote: tells all ranks which samples each micro batch has. Throws CallRefused, on
  // every rank, when those that were given the batch do not agree on it.
  void share_samples(const SplitBatch& mine);

  // --- reports (engine_reports.cpp)
  void start_reports();  // what the configuration asks for
  void begin_step();     // the clock of train_batch
  // To the monitors, and when it is time, to the log.
  void report_step(const TrainResult& result);
  void report_eval(const EvalResult& result);
  void write_metrics(std::span<const Metric> metrics);
  void progress_line(const TrainResult& result);
  void breakdown_lines();

  // --- reports of every rank (engine_rank_reports.cpp)
  std::vector<RankReport> rank_reports(const ReportOptions& report_options);
  // Remembers the shapes of the largest micro batch trained on.
  void note_largest(std::span<const model::MicroBatch> loaded);
  // The plan for such micro batches; none before there was one. Collective.
  std::optional<RankMemory> plan_for_largest();
  RankMemory planned_memory(const model::MicroBatch& example) const;

  // --- the batch size (engine_batch_size.cpp)
  void set_train_batch_size(std::int64_t train_batch_size);
  // Goes on with that of a checkpoint, if the run that saved it had changed it and was configured
  // as this one.
  void restore_batch_size(std::int64_t saved, std::int64_t configured);

  // Makes it the engine's own, read ahead where the configuration says so; null: none.
  void own_source(std::unique_ptr<model::DataSource> given);

  // --- saving (engine_save.cpp)
  void save(const std::filesystem::path& directory, const std::string& tag,
            const SaveOptions& save_options);
  // What makes the next step equal beside the tensors.
  EngineJson engine_json(const SaveOptions& save_options) const;
  // Collective: the tag that all ranks save under.
  std::string agreed_tag(const std::string& tag);
  // Collective: waits until no save is under way; throws the FileError that it ended with.
  void finish_save(CallKind kind);
  // Collective, when every rank is ready: takes a save that is under way one phase on.
  void advance_save();
  void note_saved(const std::string& tag, const checkpoint::SaveResult& result);
  void save_module(const std::filesystem::path& folder);

  // --- loading (engine_load.cpp)
  LoadResult load(const std::filesystem::path& directory, const std::optional<std::string>& tag,
                  const LoadOptions& load_options);
  LoadModuleResult load_module(const std::filesystem::path& path,
                               const LoadModuleOptions& load_options);
  // Collective: what does not fit, or throws if it has to fit. `more` is done before the ranks
  // agree that nothing is in the way.
  LoadModuleResult agree_to_load(CallKind kind, const LoadPlan& plan, const TensorSource& from,
                                 bool strict, const std::string& advice,
                                 const std::function<void()>& more);
  // Collective: afterwards a failure leaves the engine unusable.
  void read_all(const LoadPlan& plan, const TensorSource& from);
  // Takes over what stands beside the tensors.
  // The masters that were not read with their 16-bit weights begin anew from them.
  void renew_masters(const LoadPlan& plan);
  void adopt(const EngineJson& saved, const std::string& tag, const LoadOptions& load_options);

  void require_usable() const;
  void log(tensor::LogLevel level, std::string message, std::int64_t step = -1) const;
  Ballot ballot(CallKind kind);
  // Votes, and lets a save that is under way go on. Returns what vote() says of the position.
  // Throws as vote(), and the FileError of a save that failed.
  std::int64_t agree(const Ballot& mine);
  // Collective: does the work, and throws the same CallRefused on every rank if it failed on any.
  void refuse_together(CallKind kind, const std::function<void()>& work);
  // Collective: does the work, votes on whether it went well everywhere, and throws if not; what
  // the work itself threw is thrown on its rank.
  void vote_after(CallKind kind, const std::function<void()>& work);

  comm::World& world;
  Config config;
  EngineOptions options;
  BatchTriple batch;
  std::int64_t configured_batch_size = 0;  // what it began with
  std::unique_ptr<RankState> rank;
  std::unique_ptr<schedule::Schedule> train_schedule;
  std::unique_ptr<schedule::Schedule> eval_schedule;  // of the last eval_batch
  std::optional<FoundSchedule> found;                 // by pipeline.schedule "auto"
  CostMeter meter;
  std::unique_ptr<ActivationMeter> activations;  // while it measures
  int probing_steps = 0;                         // done before anything was found
  Executor executor;
  std::unique_ptr<DeviceWait> device_wait;    // set with the rank
  ProfilerSpans spans;                        // run on a device
  std::unique_ptr<MemoryMeter> memory_meter;  // null: memory is not measured
  std::unique_ptr<model::DataSource> data;
  model::PrefetchSource* ahead = nullptr;  // data, where it is read ahead
  model::DataSource* source = nullptr;     // where steps read: data, or what train_batch was given
  BatchFunction batch_function;
  std::string report;
  std::string failure;         // not empty: a step failed half-way, and this engine is unusable
  std::uint64_t identity = 0;  // hash of config, schedule and module; equal on all ranks

  std::int64_t calls = 0;    // collective calls made
  std::int64_t batches = 0;  // streams run, train and eval
  std::int64_t steps = 0;    // committed
  std::int64_t skipped = 0;  // of those, without an update
  std::int64_t samples = 0;  // of committed steps
  // Position of the source where the next step begins; meaningful on ranks that load.
  std::int64_t source_position = 0;

  AsyncSave saving;
  std::unique_ptr<Monitors> monitors;  // on rank 0, when there are any
  CallClock call_clock;
  std::int64_t trained = 0, evaluated = 0;   // calls that ended well; for reports
  std::vector<std::int64_t> largest_shapes;  // of a micro batch, as numbers; empty: none yet
  std::size_t largest_bytes = 0;
  StepTimers timers;  // run with wall_clock_breakdown
  Throughput throughput;
  std::chrono::steady_clock::time_point step_begin;
  // For progress lines: when the last one was written, and what was done since.
  std::chrono::steady_clock::time_point print_time = std::chrono::steady_clock::now();
  std::int64_t print_step = 0;
  std::int64_t tokens_per_sample = 0;  // 0: the inputs are not tokens
};

}  // namespace penstock::engine
