#include "engine/transfer_cost.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

namespace penstock::engine {

namespace {

using comm::ChannelKind;
using tensor::Tensor;

constexpr std::int64_t kSmall = 8;
constexpr int kRounds = 5;  // of each size; the first one is not counted

// Communicators only give a device its part of a transfer, so who takes the time waits for that.
void wait_for_device(comm::World& world, const tensor::Context& context) {
  if (const auto done = context.allocator->fence()) world.wait_for_device(*done);
}

// Just written, as what a stage sends is.
comm::Message make_message(const tensor::Context& context, ChannelKind kind, std::int64_t bytes) {
  comm::Message message;
  message.header.kind = kind;
  message.tensors.push_back(Tensor::zeros(context, {bytes}, tensor::DType::kU8));
  message.needs_grad.push_back(0);
  return message;
}

// Seconds of one way, as the median of round trips with the next rank; 0 on the rank that answers.
double one_way(comm::World& world, comm::Communicator& pipe, const tensor::Context& context,
               int from, std::int64_t bytes) {
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    if (pipe.rank() == from) {
      comm::Message message = make_message(context, ChannelKind::kActivation, bytes);
      wait_for_device(world, context);
      const auto begin = std::chrono::steady_clock::now();
      comm::Work sending = pipe.isend(std::move(message), from + 1, ChannelKind::kActivation);
      const comm::Message answer =
          pipe.irecv(from + 1, ChannelKind::kGradient, context.allocator).wait();
      wait_for_device(world, context);
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
      sending.wait();
      if (round > 0) seconds.push_back(passed.count() / 2);
    } else if (pipe.rank() == from + 1) {
      comm::Message answer = make_message(context, ChannelKind::kGradient, bytes);
      const comm::Message message =
          pipe.irecv(from, ChannelKind::kActivation, context.allocator).wait();
      wait_for_device(world, context);
      pipe.isend(std::move(answer), from, ChannelKind::kGradient).wait();
    }
  }
  if (seconds.empty()) return 0.0;
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

}  // namespace

TransferCost measure_transfers(comm::World& world, comm::Communicator& pipe,
                               const tensor::Context& context, std::int64_t bytes) {
  if (pipe.size() == 1) return {};
  const std::int64_t large = std::max(bytes, kSmall);
  std::array<double, 2> slowest = {0.0, 0.0};  // small, large
  for (int from = 0; from + 1 < pipe.size(); ++from) {
    slowest[0] = std::max(slowest[0], one_way(world, pipe, context, from, kSmall));
    slowest[1] = std::max(slowest[1], one_way(world, pipe, context, from, large));
  }
  pipe.all_reduce_wait(std::span<double>(slowest), comm::ReduceOp::kMax);
  TransferCost cost{.latency = slowest[0]};
  if (large > kSmall) {
    cost.seconds_per_byte = std::max(0.0, slowest[1] - slowest[0]) / static_cast<double>(large);
  }
  return cost;
}

}  // namespace penstock::engine
