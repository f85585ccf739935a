// A program that fails, to be run under mpirun by fault_test: fault_program FOLDER NAME, where NAME
// is a scenario of failures.h or a fault of the loop below. Each rank leaves a file in FOLDER.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <unistd.h>

#include "tensor/tensor.h"
#include "tests/comm/failures.h"

namespace penstock::comm::testing {
namespace {

void leave_file(const std::filesystem::path& folder, const std::string& kind, int rank,
                const std::string& text) {
  std::ofstream(folder / (kind + std::to_string(rank))) << text;
}

// The launcher ends all ranks as soon as one has gone, so they go together.
void wait_for_files(const std::filesystem::path& folder, const std::string& kind, int ranks) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int rank = 0; rank < ranks; ++rank) {
    while (!std::filesystem::exists(folder / (kind + std::to_string(rank))) &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

// Steps like those of a pipe: activations to the next rank, then a reduction over all.
void train(World& world, const std::string& fault) {
  const auto memory = tensor::make_cpu_allocator();
  Communicator& all = world.all();
  for (int step = 0;; ++step) {
    for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
      if (world.rank() > 0) all.irecv(world.rank() - 1, ChannelKind::kActivation, memory).wait();
      if (step == 3 && micro_batch == 3) {
        if (fault == "kill" && world.rank() == 2) std::raise(SIGKILL);
        if (fault == "exit" && world.rank() == 1) std::exit(0);
        if (fault == "stop" && world.rank() == 3) std::raise(SIGSTOP);
        if (fault == "throw" && world.rank() == 3) {
          const FailureCause cause{.rank = 3,
                                   .stage = 3,
                                   .instruction = "ForwardPass(c0 m3 b1)",
                                   .micro_batch = 3,
                                   .message = "the loss function threw"};
          world.abort(cause);
          throw std::runtime_error(cause.message);
        }
      }
      if (world.rank() + 1 < world.size()) {
        const auto activation = tensor::Tensor::empty(memory, {1000}, tensor::DType::kF32);
        all.isend({.header = {}, .tensors = {activation}, .needs_grad = {1}}, world.rank() + 1,
                  ChannelKind::kActivation);
      }
    }
    all.all_reduce(tensor::Tensor::empty(memory, {100'000}, tensor::DType::kF32), ReduceOp::kSum)
        .wait();
    if (fault == "finish" && step == 3) return;
  }
}

int run(const std::filesystem::path& folder, const std::string& name) {
  for (const Scenario& scenario : scenarios()) {
    if (scenario.name != name) continue;
    const auto world = make_mpi_world({.timeout_seconds = scenario.timeout_seconds});
    try {
      scenario.run(*world);
      leave_file(folder, "passed", world->rank(), "");
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d was surprised: %s\n", world->rank(), error.what());
    }
    leave_file(folder, "over", world->rank(), "");
    wait_for_files(folder, "over", world->size());
    return 3;  // and no MPI_Finalize: the world is dead
  }
  const auto world = make_mpi_world({.timeout_seconds = 3.0});
  leave_file(folder, "pid", world->rank(), std::to_string(getpid()));
  try {
    train(*world, name);
    world->close();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d says: %s\n", world->rank(), error.what());
  }
  // The first to end ends all; give the others the time to say why they stop.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  world->kill_job(7);
}

}  // namespace
}  // namespace penstock::comm::testing

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return penstock::comm::testing::run(argv[1], argv[2]);
}
