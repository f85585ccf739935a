// World of ranks that are processes, started by an MPI launcher.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/mpi/control.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/world.h"

namespace penstock::comm::mpi {

class MpiWorld final : public World {
 public:
  explicit MpiWorld(const WorldOptions& options);
  ~MpiWorld() override;

  std::string_view kind() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int host_size() const override { return host_size_; }
  int host_rank() const override { return host_rank_; }
  int host_leader() const override { return host_leader_; }
  int host_cores() const override { return host_cores_; }
  Communicator& all() override { return *all_; }
  void poll() override;
  void abort(const FailureCause& cause) noexcept override;
  bool aborted() const noexcept override { return control_->failed(); }
  void close() override;

  // For the communicators.
  MPI_Comm message_comm() const { return message_comm_; }
  MPI_Comm collective_comm() const { return collective_comm_; }
  // Throws PeerLost after an abort by any rank, and CommError after close().
  void check();
  // MPI may be called.
  bool usable() const noexcept { return !closed_ && !aborted(); }
  using World::advance;
  void add(std::shared_ptr<Operation> operation) override {
    active_.push_back(std::move(operation));
  }
  // Kept while a receive is posted into it.
  void add_inlet(std::shared_ptr<Inlet> inlet) { inlets_.push_back(std::move(inlet)); }
  void remove_inlet(const Inlet& inlet) noexcept;
  std::int64_t next_group() const { return next_group_; }
  // Throws Unsupported when MPI's tags cannot number so many groups.
  void reserve_groups(std::int64_t next_group);

 protected:
  void wait_for(Operation& operation) override;
  void kill_others(int status) noexcept override { MPI_Abort(MPI_COMM_WORLD, status); }

 private:
  void find_host();

  int rank_ = 0;
  int size_ = 1;
  int host_size_ = 1;
  int host_rank_ = 0;
  int host_leader_ = 0;
  int host_cores_ = 1;
  bool closed_ = false;
  std::thread::id thread_ = std::this_thread::get_id();
  MPI_Comm message_comm_ = MPI_COMM_NULL;
  MPI_Comm collective_comm_ = MPI_COMM_NULL;
  std::int64_t next_group_ = 1;  // 0 is all()
  std::int64_t max_groups_ = 0;
  std::chrono::steady_clock::time_point listened_{};
  std::optional<Control> control_;
  std::vector<std::shared_ptr<Inlet>> inlets_;
  std::vector<std::shared_ptr<Operation>> active_;
  std::unique_ptr<MpiCommunicator> all_;
};

}  // namespace penstock::comm::mpi
