// A run that fails, under mpirun, for fault_test:
//   fault_program loss FOLDER                             4 stages; the loss throws
//   fault_program stop FOLDER                             4 stages; rank 3 stops in a step
//   fault_program endless FOLDER                          4 stages; trains until it is ended
//   fault_program memory FOLDER                           4 stages; the first one has no room
//   fault_program save FOLDER RANK before|after CALL FILE 2 × 2; RANK kills itself while it saves
//   fault_program async …                                 the same, while training goes on
// RANK -1 is every rank. CALL is fsync or rename, FILE the end of the path that it is for (the new
// one, of a rename).
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "model/data/repeating_source.h"
#include "model/layers/linear.h"
#include "tests/engine/failing_loss.h"
#include "tests/engine/fault_runs.h"

namespace penstock::testing {
namespace {

// Where this process ends; armed for the second save alone, before that begins.
struct KillPoint {
  bool armed = false;
  std::string when, call, file;

  void reach(const std::string& now, const std::string& running, const std::string& path) const {
    if (armed && now == when && running == call && path.ends_with("/" + file)) {
      std::raise(SIGKILL);
    }
  }
};
KillPoint kill_point;

std::string path_of(int fd) {
  char path[4096];
  const ssize_t size = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return size < 0 ? "" : std::string(path, static_cast<std::size_t>(size));
}

}  // namespace
}  // namespace penstock::testing

// Of the address sanitizer, where the program is built with it: no room is an error of the program,
// not of the test.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

// In the place of the C library's, for all that is linked into this program.
extern "C" int fsync(int fd) {
  const std::string path = penstock::testing::path_of(fd);
  penstock::testing::kill_point.reach("before", "fsync", path);
  const auto result = static_cast<int>(syscall(SYS_fsync, fd));
  penstock::testing::kill_point.reach("after", "fsync", path);
  return result;
}

extern "C" int rename(const char* from, const char* to) noexcept {
  penstock::testing::kill_point.reach("before", "rename", to);
  const int result = renameat(AT_FDCWD, from, AT_FDCWD, to);
  penstock::testing::kill_point.reach("after", "rename", to);
  return result;
}

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

void leave_file(const fs::path& folder, const std::string& kind, int rank,
                const std::string& text = "") {
  std::ofstream(folder / (kind + std::to_string(rank))) << text;
}

// The launcher ends all ranks as soon as one has gone, so they go together.
void wait_for_files(const fs::path& folder, const std::string& kind, int ranks) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int rank = 0; rank < ranks; ++rank) {
    while (!fs::exists(folder / (kind + std::to_string(rank))) &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

int save(comm::World& world, const fs::path& folder, int rank, bool async) {
  engine::Engine engine(world, mlp8(), config_of(kSaveRun), mlp_samples(64));
  engine.train_batch();
  engine.save_checkpoint(folder / "checkpoints", "step10");
  engine.train_batch();
  leave_file(folder, "saving", world.rank());
  kill_point.armed = rank == -1 || world.rank() == rank;
  engine.save_checkpoint(folder / "checkpoints", "step20", {.async = async});
  if (async) {
    for (int step = 0; step < 4; ++step) engine.train_batch();
    engine.finish_save();
  }
  leave_file(folder, "saved", world.rank());
  engine.close();
  world.close();
  return 0;
}

void fail(comm::World& world, const fs::path& folder) {
  model::Module module = mlp8();
  auto loss = std::make_shared<FailingLoss>(/*micro_batch=*/3);
  module.loss = loss;
  engine::Engine engine(world, module, config_of(kLossRun), mlp_samples(64));
  engine.train_batch();
  engine.save_checkpoint(folder / "checkpoints", "step1");
  loss->arm();
  leave_file(folder, "first", world.rank(), thrown_by([&] { engine.train_batch(); }));
  leave_file(folder, "later", world.rank(),
             thrown_by([&] { engine.save_checkpoint(folder / "checkpoints", "never"); }));
  leave_file(folder, "over", world.rank());
  wait_for_files(folder, "over", world.size());
  world.kill_job(7);
}

// Trains on after a checkpoint, endlessly; `fault` is called in each forward pass of later steps.
void train_on(comm::World& world, const fs::path& folder, const std::function<void()>& fault) {
  engine::Engine engine(world, mlp8(), config_of(kLossRun),
                        std::make_unique<model::RepeatingSource>(mlp_samples(64)));
  engine.train_batch();
  engine.save_checkpoint(folder / "checkpoints", "step1");
  leave_file(folder, "pid", world.rank(), std::to_string(getpid()) + "\n");
  engine.replace_handler(schedule::Opcode::kForwardPass,
                         [&](const schedule::Instruction&, const std::function<void()>& built_in) {
                           fault();
                           built_in();
                         });
  const std::string error = thrown_by([&] {
    for (;;) engine.train_batch();
  });
  std::fprintf(stderr, "rank %d says: %s\n", world.rank(), error.c_str());
  // The first to end ends all; give the others the time to say why they stop.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  world.kill_job(7);
}

// More bytes than there are addresses.
void run_out_of_memory(comm::World& world, const fs::path& folder) {
  model::Module module = mlp8();
  module.layers[0] =
      model::layer<model::Linear>("Huge", std::int64_t{1} << 20, std::int64_t{1} << 26);
  RunSpec run = kLossRun;
  run.more = kUniform;
  leave_file(folder, "first", world.rank(), thrown_by([&] {
               const engine::Engine engine(world, module, config_of(run), mlp_samples(64));
             }));
  leave_file(folder, "over", world.rank());
  wait_for_files(folder, "over", world.size());
  world.kill_job(7);
}

int run(int argc, char** argv) {
  const std::string mode = argv[1];
  const auto world =
      comm::make_mpi_world({.timeout_seconds = mode == "stop" ? 3.0 : kTimeoutSeconds});
  if (mode == "loss") fail(*world, argv[2]);
  if (mode == "memory") run_out_of_memory(*world, argv[2]);
  if (mode == "endless") train_on(*world, argv[2], [] {});
  if (mode == "stop") {
    train_on(*world, argv[2], [&] {
      if (world->rank() == 3) std::raise(SIGSTOP);
    });
  }
  if (argc != 7) return 2;
  kill_point = {false, argv[4], argv[5], argv[6]};
  return save(*world, argv[2], std::stoi(argv[3]), mode == "async");
}

}  // namespace
}  // namespace penstock::testing

int main(int argc, char** argv) {
  return argc < 3 ? 2 : penstock::testing::run(argc, argv);
}
