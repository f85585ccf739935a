// World of ranks that are threads of one process.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "comm/local/hub.h"
#include "comm/local/local_communicator.h"
#include "comm/world.h"

namespace penstock::comm::local {

class LocalWorld final : public World {
 public:
  // `group` holds all ranks of the hub; both outlive the world.
  LocalWorld(Hub& hub, std::shared_ptr<Group> group, int rank, const WorldOptions& options);
  ~LocalWorld() override;

  std::string_view kind() const override { return "local"; }
  int rank() const override { return rank_; }
  int size() const override { return hub_.size(); }
  int host_size() const override { return hub_.size(); }
  int host_rank() const override { return rank_; }
  int host_leader() const override { return 0; }
  int host_cores() const override { return cores_; }
  Communicator& all() override { return all_; }
  void poll() override;
  void abort(const FailureCause& cause) noexcept override { hub_.abort(cause); }
  bool aborted() const noexcept override { return hub_.aborted(); }
  void close() override;

  // Throws PeerLost after an abort.
  void check() {
    if (hub_.aborted()) fail();
  }
  using World::advance;
  using World::advance_all;
  void add(std::shared_ptr<Operation> operation) override {
    active_.push_back(std::move(operation));
  }

 protected:
  void wait_for(Operation& operation) override;
  void kill_others(int) noexcept override {}  // they are in this process

 private:
  [[noreturn]] void fail();
  void spin(std::uint64_t seen) const;
  // When a rank that waits for the operation must look again, though nobody has rung.
  Clock::time_point wake_time(const Operation& operation, Clock::time_point deadline) const;
  // Throws PeerLost if the rank that the operation waits for has left and it cannot complete.
  void check_left(Operation& operation);

  Hub& hub_;
  int rank_;
  int cores_;
  std::vector<std::shared_ptr<Operation>> active_;
  LocalCommunicator all_;
};

}  // namespace penstock::comm::local
