// penstock-train: trains a model of the zoo, with ranks as threads or under mpirun.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include <boost/program_options/errors.hpp>

#include "comm/device/devices.h"
#include "comm/world.h"
#include "engine/config.h"
#include "tensor/log_filter.h"
#include "tools/console_log.h"
#include "tools/train/options.h"
#include "tools/train/plan.h"
#include "tools/train/session.h"
#include "tools/train/usage_error.h"

namespace {

using namespace penstock;

constexpr int kUsage = 2;
constexpr int kFailure = 1;

// With more threads than this a process does little but change between them.
constexpr int kMostLocalRanks = 1024;

// Ranks that the MPI launcher started, as Open MPI, PMI and Slurm say it; 1 when none of them does.
int launched_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}) {
    if (const char* value = std::getenv(name)) return std::max(1, std::atoi(value));
  }
  return 1;
}

bool use_mpi(const engine::Config& config) {
  switch (config.communication.backend) {
    case engine::CommunicationBackend::kLocal:
      if (comm::launched_by_mpi() && launched_ranks() > 1) {
        throw tools::UsageError(
            "communication.backend is \"local\", but the launcher started " +
            std::to_string(launched_ranks()) +
            " processes, which would all train the same run; expected \"mpi\" or one process");
      }
      return false;
    case engine::CommunicationBackend::kMpi:
      return true;
    case engine::CommunicationBackend::kAuto:
      return comm::launched_by_mpi();
  }
  return false;
}

// Ranks as threads of this process.
int local_ranks(const tools::TrainOptions& options, const engine::Config& config) {
  const int ranks = options.ranks.value_or(tools::least_ranks(config));
  if (ranks <= kMostLocalRanks) return ranks;
  throw tools::UsageError(
      std::to_string(ranks) + " ranks (" +
      (options.ranks ? "--ranks" : "pipeline.stages x tensor_parallel.size") +
      ") would be as many threads of one process; expected at most " +
      std::to_string(kMostLocalRanks) +
      "; start them as processes, by mpirun, or see what they would need, by --plan");
}

bool is_usage_error(const std::exception& error) {
  return dynamic_cast<const tools::UsageError*>(&error) != nullptr ||
         dynamic_cast<const boost::program_options::error*>(&error) != nullptr;
}

// Under mpirun each process is a rank. When one fails, the job ends: the others may be waiting for
// it in places that only the launcher can reach.
int run_under_mpi(const tools::TrainOptions& options, const engine::Config& config,
                  tensor::Log& log) {
  if (options.ranks) {
    throw tools::UsageError(
        "--ranks is for one process; under an MPI launcher it says how many (to run "
        "ranks as threads all the same, --set communication.backend=local)");
  }
  const auto world =
      comm::make_mpi_world({.timeout_seconds = config.communication.timeout_seconds});
  try {
    tools::train(*world, options, config, log);
    world->close();
    return 0;
  } catch (const std::exception& error) {
    // In one piece, since other ranks write at the same time.
    std::cerr << "penstock-train on rank " + std::to_string(world->rank()) + ": " + error.what() +
                     '\n'
              << std::flush;
    const int status = is_usage_error(error) ? kUsage : kFailure;
    world->kill_job(status);
    return status;  // not reached
  }
}

int run(int argc, char** argv) {
  const std::optional<tools::TrainOptions> options = tools::parse_command_line(argc, argv);
  if (!options) return 0;
  const engine::Config config = engine::load_config_file(options->config, options->overrides);
  if (options->plan) {
    if (comm::launched_by_mpi() && launched_ranks() > 1) {
      throw tools::UsageError(
          "--plan is for one process, whatever the grid; the launcher "
          "started " +
          std::to_string(launched_ranks()));
    }
    std::cout << tools::describe_plan(*options, config);
    return 0;
  }
  const std::unique_ptr<tensor::Log> console = tools::make_console_log(options->verbose);
  tensor::LogFilter log(*console, options->log);
  if (use_mpi(config)) return run_under_mpi(*options, config, log);
  comm::run_local(local_ranks(*options, config),
                  {.timeout_seconds = config.communication.timeout_seconds},
                  [&](comm::World& world) { tools::train(world, *options, config, log); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  penstock::comm::prepare_devices();
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    const bool usage = is_usage_error(error);
    std::cerr << "penstock-train: " << error.what()
              << (usage ? "; see penstock-train --help\n" : "\n");
    return usage ? kUsage : kFailure;
  }
}
