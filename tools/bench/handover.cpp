// penstock-bench handover: what it costs to give an activation to the next stage.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "tools/bench/benchmarks.h"
#include "tools/bench/measure.h"
#include "tools/bench/mpi_baseline.h"

namespace penstock::tools {

namespace {

using tensor::Tensor;

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
const std::vector<std::int64_t> kSizes = {64 * kKiB, 256 * kKiB, kMiB,
                                          4 * kMiB,  16 * kMiB,  64 * kMiB};

Tensor buffer(const std::shared_ptr<tensor::Allocator>& allocator, std::int64_t bytes) {
  return Tensor::empty(allocator, {bytes}, tensor::DType::kU8);
}

// Its pages are there and hold something.
Tensor written_buffer(const std::shared_ptr<tensor::Allocator>& allocator, std::int64_t bytes) {
  Tensor tensor = buffer(allocator, bytes);
  std::memset(tensor.raw(), 1, tensor.nbytes());
  return tensor;
}

comm::Message message_of(const Tensor& tensor) {
  comm::Message message;
  message.tensors = {tensor};
  message.needs_grad = {0};
  return message;
}

// Sends one tensor there and another back, `count` times; gives seconds for one way. The tensors
// are made anew each time, as a stage does.
double one_way_seconds(comm::World& world, std::int64_t bytes, int count) {
  comm::Communicator& all = world.all();
  const auto allocator = tensor::make_cpu_allocator();
  const int peer = 1 - world.rank();
  return median_seconds(5,
                        [&] {
                          for (int i = 0; i < count; ++i) {
                            if (world.rank() == 0) {
                              all.isend(message_of(buffer(allocator, bytes)), peer,
                                        comm::ChannelKind::kActivation);
                              all.irecv(peer, comm::ChannelKind::kGradient, allocator).wait();
                            } else {
                              all.irecv(peer, comm::ChannelKind::kActivation, allocator).wait();
                              all.isend(message_of(buffer(allocator, bytes)), peer,
                                        comm::ChannelKind::kGradient);
                            }
                          }
                        }) /
         (2.0 * count);
}

void handover_between_threads() {
  Table table({"ranks as threads", "same memory", "us per message"});
  comm::run_local(2, {}, [&](comm::World& world) {
    for (const std::int64_t bytes : kSizes) {
      // The receiver must see the sender's own memory.
      const auto allocator = tensor::make_cpu_allocator();
      std::int64_t same = 0;
      if (world.rank() == 0) {
        const Tensor sent = buffer(allocator, bytes);
        std::int64_t address = reinterpret_cast<std::int64_t>(sent.raw());
        world.all().isend(message_of(sent), 1, comm::ChannelKind::kActivation).wait();
        world.all().all_reduce_wait(std::span(&address, 1), comm::ReduceOp::kMax);
      } else {
        const comm::Message got =
            world.all().irecv(0, comm::ChannelKind::kActivation, allocator).wait();
        const auto mine = reinterpret_cast<std::int64_t>(got.tensors[0].raw());
        std::int64_t address = mine;
        world.all().all_reduce_wait(std::span(&address, 1), comm::ReduceOp::kMax);
        same = address == mine ? 1 : 0;
      }
      world.all().all_reduce_wait(std::span(&same, 1), comm::ReduceOp::kMax);
      const double seconds = one_way_seconds(world, bytes, 200);
      if (world.rank() != 0) continue;
      table.add({formatted("%.0f KiB", static_cast<double>(bytes) / kKiB), same ? "yes" : "NO",
                 formatted("%.2f", seconds * 1e6)});
    }
  });
  table.print();
}

// What the two processes send to each other. It decides where the bytes are when a transfer begins:
// what the sender has just written must come out of its core's cache, at whatever speed the two
// cores have for that; what nobody writes lies in the receiver's cache from the time before.
enum class Sent {
  kPassedOn,   // what was received last, as a stage sends what it has just computed
  kUnchanged,  // the same memory again and again, as bandwidth benchmarks do
};

// Gives seconds for one way of `count` ping-pongs, after one that is not counted.
template <class Send, class Receive>
double ping_pong_seconds(int rank, int count, Send send, Receive receive) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin;
  for (int i = -1; i < count; ++i) {
    if (i == 0) begin = Clock::now();
    if (rank == 0) send();
    receive();
    if (rank != 0) send();
  }
  return std::chrono::duration<double>(Clock::now() - begin).count() / (2.0 * count);
}

// A turn of each transport takes two blocks of the allocator: the same two every time.
double penstock_turn(comm::World& world, const std::shared_ptr<tensor::Allocator>& allocator,
                     std::int64_t bytes, int count, Sent sent) {
  comm::Communicator& all = world.all();
  const int peer = 1 - world.rank();
  Tensor mine = written_buffer(allocator, bytes);
  return ping_pong_seconds(
      world.rank(), count,
      [&] { all.isend(message_of(mine), peer, comm::ChannelKind::kActivation); },
      [&] {
        const comm::Message got = all.irecv(peer, comm::ChannelKind::kActivation, allocator).wait();
        if (sent == Sent::kPassedOn) mine = got.tensors[0];
      });
}

double plain_turn(comm::World& world, const std::shared_ptr<tensor::Allocator>& allocator,
                  std::int64_t bytes, int count, Sent sent) {
  const int peer = 1 - world.rank();
  Tensor mine = written_buffer(allocator, bytes);
  Tensor other = buffer(allocator, bytes);
  return ping_pong_seconds(
      world.rank(), count, [&] { mpi_send(mine, peer); },
      [&] {
        mpi_receive(other, peer);
        if (sent == Sent::kPassedOn) std::swap(mine, other);
      });
}

// GB/s by Penstock, by plain MPI, and their ratio.
std::vector<std::string> compare(comm::World& world, std::int64_t bytes, Sent sent) {
  constexpr int kTurns = 10;
  const int count = static_cast<int>(std::max<std::int64_t>(4, 16 * kMiB / bytes));
  const auto allocator = tensor::make_cpu_allocator();
  // In short turns, so that both see the same machine, and each begins as often as the other.
  std::vector<double> ours, plain;
  for (int turn = 0; turn < 2 * kTurns; ++turn) {
    if ((turn + 1) / 2 % 2 == 0) {
      ours.push_back(penstock_turn(world, allocator, bytes, count, sent));
    } else {
      plain.push_back(plain_turn(world, allocator, bytes, count, sent));
    }
  }
  const double mine = static_cast<double>(bytes) / median(ours) * 1e-9;
  const double theirs = static_cast<double>(bytes) / median(plain) * 1e-9;
  return {formatted("%.2f", mine), formatted("%.2f", theirs), formatted("%.3f", mine / theirs)};
}

void handover_between_processes(comm::World& world) {
  Table table({"MPI, 2 processes, GB/s", "passed on: Penstock", "plain MPI", "ratio",
               "unchanged: Penstock", "plain MPI", "ratio"});
  for (const std::int64_t bytes : kSizes) {
    std::vector<std::string> row = {formatted("%.0f KiB", static_cast<double>(bytes) / kKiB)};
    for (const Sent sent : {Sent::kPassedOn, Sent::kUnchanged}) {
      for (std::string& cell : compare(world, bytes, sent)) row.push_back(std::move(cell));
    }
    table.add(std::move(row));
  }
  if (world.rank() == 0) table.print();
}

}  // namespace

void bench_handover() {
  if (!comm::launched_by_mpi()) return handover_between_threads();
  const auto world = comm::make_mpi_world({});
  if (world->size() != 2) {
    throw tensor::InvalidArgument("[bench] handover needs 2 processes under mpirun, got " +
                                  std::to_string(world->size()));
  }
  handover_between_processes(*world);
  world->close();
}

}  // namespace penstock::tools
