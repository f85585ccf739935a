// World: one rank's view of all ranks of a run, its control plane, and how a run fails.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "tensor/context.h"
#include "tensor/fence.h"

namespace penstock::comm {

struct WorldOptions {
  double timeout_seconds = 300.0;  // of every single wait
};

// Two kinds: "local" (ranks are threads of one process; nothing is copied between them) and "mpi"
// (ranks are processes). A World belongs to its rank's thread, which makes all calls; abort() may
// be called from any thread of the rank.
class World : public tensor::Progress {
 public:
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  virtual std::string_view kind() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Ranks on this rank's host, this rank's place among them, and the first of them.
  virtual int host_size() const = 0;
  virtual int host_rank() const = 0;
  virtual int host_leader() const = 0;
  // Cores that the ranks of this host may use, all together.
  virtual int host_cores() const = 0;
  // The communicator of all ranks, owned by the world.
  virtual Communicator& all() = 0;
  double timeout_seconds() const { return options_.timeout_seconds; }

  // Time that this rank has spent in waits for what other ranks had still to do.
  std::chrono::nanoseconds waited() const { return waited_; }

  // Moves pending work on; returns at once when there is none. Throws PeerLost after an abort by
  // any rank.
  void poll() override = 0;

  // For communicators that are made of others: poll() moves the operation on until it completes.
  virtual void add(std::shared_ptr<Operation> operation) = 0;
  // Waits until a device has got there, moving pending work on. Without a limit of its own, for
  // what a device computes may take any time: who has given it work that needs another rank watches
  // over that. Throws what poll() and the fence throw.
  void wait_for_device(tensor::Fence& fence);

  // Tells every rank why this one cannot go on, and waits for none. The first cause wins. From then
  // on every wait on every rank throws PeerLost, and the world is only fit to be destroyed.
  virtual void abort(const FailureCause& cause) noexcept = 0;
  virtual bool aborted() const noexcept = 0;
  // Ends an orderly run; collective. Not called after an abort.
  virtual void close() = 0;
  // For tools that cannot go on: ends the processes of all ranks with this status.
  [[noreturn]] void kill_job(int status) noexcept;

  // Something of this rank that hangs when a peer is lost, unless it is told: work that a device
  // does together with another rank's.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    // On the rank's thread, before its first call that throws because of the abort; once.
    virtual void world_aborted() noexcept = 0;
  };
  void watch(Watcher& watcher) { watchers_.push_back(&watcher); }
  void unwatch(Watcher& watcher) noexcept { std::erase(watchers_, &watcher); }

 protected:
  friend class Work;
  friend class ReceiveWork;
  friend class LongWaits;

  explicit World(const WorldOptions& options) : options_(options) {}
  // Moves the operation on. A CommError aborts the world, for the others may be waiting for what
  // this rank will not do now.
  bool advance(Operation& operation);
  // Moves all on and drops those that have completed. When one throws, it and the others stay.
  void advance_all(std::vector<std::shared_ptr<Operation>>& operations);
  // Waits until the operation has completed, moving on all others meanwhile, and adds the time to
  // waited_ unless it was complete at once. Throws PeerLost after an abort, and what give_up()
  // throws when the time-out has passed.
  virtual void wait_for(Operation& operation) = 0;
  // Ends the processes of the other ranks.
  virtual void kill_others(int status) noexcept = 0;
  // Aborts the world because this rank waited too long, and throws TimedOut.
  [[noreturn]] void give_up(const Operation& operation);
  // Whenever this rank notices that the world was aborted.
  void tell_watchers() noexcept;

  WorldOptions options_;
  std::chrono::nanoseconds waited_{};

 private:
  std::vector<Watcher*> watchers_;  // that were not told yet
};

// While it lives, a wait of this rank may take so many seconds, if that is more than the world's
// time-out. For the parts of a run where ranks wait for one that is busy with something slow that
// is no failure, such as a disk; all ranks enter and leave them together.
class LongWaits {
 public:
  LongWaits(World& world, double seconds);
  ~LongWaits();
  LongWaits(const LongWaits&) = delete;
  LongWaits& operator=(const LongWaits&) = delete;

 private:
  World& world_;
  double before_;
};

// Runs fn on `ranks` threads of this process, each with its own World, and waits for all. When a
// rank throws, the others are aborted, and the first exception is rethrown here.
void run_local(int ranks, const WorldOptions& options, const std::function<void(World&)>& fn);

// The world of this process under mpirun or another MPI launcher. Initialises MPI; at most one per
// process. Throws Unsupported, naming PENSTOCK_MPI, when built without MPI.
std::unique_ptr<World> make_mpi_world(const WorldOptions& options);
// True when the process was started by an MPI launcher; also in a build without MPI, where
// make_mpi_world() then says what is missing.
bool launched_by_mpi();

}  // namespace penstock::comm
