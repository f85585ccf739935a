// Two ranks that compute, send each other what they have, and add it up, as a pipeline and its
// replicas do.
#include <memory>
#include <mutex>
#include <vector>

#include "comm/device/devices.h"
#include "comm/world.h"
#include "tensor/cuda/cuda.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/fill.h"
#include "tensor/transfer.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/cuda_emulation/planted/scenario.h"
#include "tests/support/tensors.h"

namespace penstock::cuda_emulation::planted {

namespace {

using comm::ChannelKind;
using tensor::Context;
using tensor::DType;
using tensor::Tensor;

constexpr std::int64_t kSizes[] = {5000, 300};
constexpr int kRounds = 4;

comm::Message message_of(std::vector<Tensor> tensors) {
  comm::Message message;
  message.needs_grad.assign(tensors.size(), 0);
  message.tensors = std::move(tensors);
  return message;
}

// Numbers that are made by several kernels, one after the other.
Tensor computed(Context& context, std::int64_t size, double value) {
  Tensor x = Tensor::empty(context, {size}, DType::kF32);
  fill(context, x, value);
  for (int i = 0; i < 4; ++i) x = scale(context, x, i % 2 == 0 ? 2 : 0.5);
  return x;
}

// What is wrong with x, all of whose elements should be `wanted`.
std::string differs(const Tensor& x, float wanted) {
  for (const float each : testing::values<float>(tensor::to_host(testing::cpu_context(), x))) {
    if (!(each == wanted)) {
      return "got " + std::to_string(each) + " where " + std::to_string(wanted) + " was wanted\n";
    }
  }
  return "";
}

// Activations to the peer, gradients of what came from it back, and a sum over both.
std::string run_rank(comm::World& world, comm::Communicator& all, Context context) {
  const int peer = 1 - world.rank();
  std::vector<Tensor> results;
  for (int round = 0; round < kRounds; ++round) {
    all.isend(message_of({computed(context, kSizes[0], world.rank() + round),
                          computed(context, kSizes[1], 10 + world.rank() + round)}),
              peer, ChannelKind::kActivation);
    std::vector<Tensor> got =
        all.irecv(peer, ChannelKind::kActivation, context.allocator).wait().tensors;
    std::vector<Tensor> grads;
    for (const Tensor& each : got) grads.push_back(scale(context, scale(context, each, 4), 0.75));
    got.clear();  // while that is only queued
    const Tensor over = computed(context, kSizes[0], -1);
    all.isend(message_of(std::move(grads)), peer, ChannelKind::kGradient);
    const std::vector<Tensor> back =
        all.irecv(peer, ChannelKind::kGradient, context.allocator).wait().tensors;
    const Tensor sum = scale(context, back.at(0), 1);
    all.all_reduce(sum, comm::ReduceOp::kSum).wait();
    results.push_back(scale(context, back.at(1), 1));
    results.push_back(add(context, sum, over));
  }
  world.wait_for_device(*context.allocator->fence());  // while the time-outs of transfers run
  std::string wrong;
  for (int round = 0; round < kRounds; ++round) {
    const auto at = static_cast<std::size_t>(2 * round);
    wrong += differs(results[at], static_cast<float>(3 * (10 + world.rank() + round)));
    wrong += differs(results[at + 1], static_cast<float>(3 * (2 * round + 1) - 1));
  }
  return wrong;
}

std::string run_pair(const Run& run, comm::Transport transport) {
  comm::prepare_devices();
  const bool nccl = transport == comm::Transport::kNccl;
  start({.seed = run.seed, .devices = nccl ? 2 : 1, .patience = run.patience});
  std::mutex mutex;
  std::string wrong;
  // So that ranks tell who they wait for before the emulation gives up.
  const double seconds = std::chrono::duration<double>(run.patience).count() / 3;
  comm::run_local(2, {.timeout_seconds = seconds}, [&](comm::World& world) {
    const auto memory = tensor::cuda::make_cuda_allocator({.device = nccl ? world.rank() : 0});
    const auto all = make_device_communicator(world, world.all().split(0, world.rank()), transport,
                                              memory, comm::Links::kNeighbours);
    const std::string own = run_rank(world, *all, Context(memory));
    all->close();
    world.close();
    const std::lock_guard lock(mutex);
    wrong += own;
  });
  return wrong;
}

}  // namespace

std::vector<Scenario> rank_scenarios() {
  return {{"ranks_by_nccl", [](const Run& run) { return run_pair(run, comm::Transport::kNccl); }},
          {"ranks_on_one_device",
           [](const Run& run) { return run_pair(run, comm::Transport::kStaged); }}};
}

}  // namespace penstock::cuda_emulation::planted
