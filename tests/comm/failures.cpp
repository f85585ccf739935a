#include "tests/comm/failures.h"

#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tensor/tensor.h"

namespace penstock::comm::testing {

namespace {

using tensor::DType;
using tensor::Tensor;

void expect(bool condition, const std::string& what) {
  if (!condition) throw Surprise(what);
}

void expect_part(const std::string& text, const std::string& part) {
  expect(text.find(part) != std::string::npos, "\"" + text + "\" lacks \"" + part + "\"");
}

// What fn must throw.
template <class E, class Fn>
E caught(Fn fn) {
  try {
    fn();
  } catch (const E& error) {
    return error;
  } catch (const std::exception& error) {
    throw Surprise(std::string("another exception: ") + error.what());
  }
  throw Surprise("no exception");
}

// Polls, as a rank does that computes, until a failure is noticed.
void compute(World& world) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < end) {
    world.poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

bool is_last(World& world) {
  return world.rank() == world.size() - 1;
}

std::string last_rank(World& world) {
  return "rank " + std::to_string(world.size() - 1);
}

Tensor tensor_of(std::int64_t elements, DType dtype) {
  return Tensor::zeros(tensor::Context(tensor::make_cpu_allocator()), {elements}, dtype);
}

Message message_of(std::int64_t bytes) {
  return {.header = {}, .tensors = {tensor_of(bytes, DType::kU8)}, .needs_grad = {0}};
}

void receive(World& world, int peer) {
  world.all().irecv(peer, ChannelKind::kActivation, tensor::make_cpu_allocator()).wait();
}

const FailureCause kCause{.rank = 1,
                          .stage = 2,
                          .instruction = "ForwardPass(c0 m3 b1)",
                          .micro_batch = 3,
                          .message = "[loss] is not finite"};

void expect_cause(const FailureCause& cause) {
  expect(cause.to_string() ==
             "rank 1 (stage 2, ForwardPass(c0 m3 b1), micro batch 3): [loss] is not finite",
         "the cause is " + cause.to_string());
}

// Rank 0 waits for what never comes; the others learn of it while they compute.
template <class Fn>
void time_out_on_rank_0(World& world, Fn wait, const std::vector<std::string>& parts) {
  if (world.rank() == 0) {
    const TimedOut error = caught<TimedOut>(wait);
    expect_part(error.what(), "rank 0 waited 0.3 s for ");
    for (const std::string& part : parts) expect_part(error.what(), part);
    expect(world.aborted(), "the world lives on");
  } else {
    const PeerLost error = caught<PeerLost>([&] { compute(world); });
    expect(error.cause().rank == 0, error.what());
    for (const std::string& part : parts) expect_part(error.cause().message, part);
  }
}

void time_out_receive(World& world) {
  time_out_on_rank_0(world, [&] { receive(world, world.size() - 1); },
                     {"a message of kind activation from " + last_rank(world),
                      last_rank(world) + " did not come"});
}

void time_out_send(World& world) {
  time_out_on_rank_0(
      world,
      [&] { world.all().isend(message_of(64), world.size() - 1, ChannelKind::kGradient).wait(); },
      {last_rank(world) + " to receive this rank's gradient message"});
}

void time_out_large_send(World& world) {
  time_out_on_rank_0(
      world,
      [&] {
        world.all().isend(message_of(1 << 22), world.size() - 1, ChannelKind::kActivation).wait();
      },
      {last_rank(world) + " to receive this rank's activation message"});
}

// All but the last rank wait in a collective.
void time_out_collective(World& world) {
  const Tensor tensor = tensor_of(100'000, DType::kF32);
  const std::string call = "all_reduce (max) of 100000 f32 over ranks 0, 1";
  const auto wait = [&] { world.all().all_reduce(tensor, ReduceOp::kMax).wait(); };
  try {
    is_last(world) ? compute(world) : wait();
  } catch (const TimedOut& error) {
    expect(!is_last(world), error.what());
    expect_part(error.what(), call);
    expect_part(error.what(), last_rank(world) + " did not come");
    return;
  } catch (const PeerLost& error) {  // another rank's time-out came first
    expect_part(error.cause().message, call);
    return;
  }
  throw Surprise("no exception");
}

void abort_wakes_all(World& world) {
  if (world.rank() == 1) {
    nap();
    world.abort(kCause);
  }
  const PeerLost error = caught<PeerLost>([&] {
    switch (world.rank() % 4) {
      case 0:
        return receive(world, 1);
      case 1:
        return world.all().barrier().wait();
      case 2:
        return world.all().isend(message_of(1 << 20), 1, ChannelKind::kActivation).wait();
      default:
        return compute(world);
    }
  });
  expect_cause(error.cause());
  expect_part(error.what(), "peer lost: rank 1 (stage 2");
}

void abort_keeps_the_first_cause(World& world) {
  if (world.rank() == 1) {
    world.abort(kCause);
    world.abort({.rank = 1, .stage = 0, .instruction = {}, .micro_batch = 0, .message = "later"});
  }
  expect_cause(caught<PeerLost>([&] { receive(world, 1); }).cause());
  world.abort({.rank = world.rank(),
               .stage = -1,
               .instruction = {},
               .micro_batch = -1,
               .message = "also failed"});
  expect_cause(caught<PeerLost>([&] { world.poll(); }).cause());
}

void abort_leaves_a_dead_world(World& world) {
  if (world.rank() == 1) world.abort(kCause);
  caught<PeerLost>([&] { compute(world); });
  expect(world.aborted(), "aborted() is false");
  caught<PeerLost>([&] { world.all().isend({}, 0, ChannelKind::kActivation); });
  caught<PeerLost>([&] { receive(world, 0); });
  caught<PeerLost>([&] { world.all().barrier(); });
  caught<PeerLost>([&] { world.all().split(0, 0); });
  caught<PeerLost>([&] { world.all().close(); });
}

// With work of every kind under way, whose memory must survive until nothing touches it.
void abort_amid_work(World& world) {
  std::vector<Work> works;
  const PeerLost error = caught<PeerLost>([&] {
    for (int peer = 0; peer < world.size(); ++peer) {
      works.push_back(world.all().isend(message_of(300'000), peer, ChannelKind::kActivation));
      world.all().irecv(peer, ChannelKind::kGradient, tensor::make_cpu_allocator());
    }
    for (int i = 0; i < 3; ++i) {
      works.push_back(world.all().all_reduce(tensor_of(400'000, DType::kF64), ReduceOp::kSum));
    }
    if (world.rank() == 1) world.abort(kCause);
    for (Work& work : works) work.wait();
    compute(world);
  });
  expect_cause(error.cause());
}

void abort_from_another_thread(World& world) {
  std::thread helper;
  if (world.rank() == 1) {
    helper = std::thread([&world] {
      nap();
      world.abort(kCause);
    });
  }
  const PeerLost error = caught<PeerLost>([&] { receive(world, 1); });
  if (helper.joinable()) helper.join();
  expect_cause(error.cause());
}

void abort_cuts_a_long_text(World& world) {
  FailureCause cause = kCause;
  cause.message.assign(100'000, 'x');
  if (world.rank() == 1) world.abort(cause);
  const PeerLost error = caught<PeerLost>([&] { compute(world); });
  expect(error.cause().rank == 1 && error.cause().stage == 2 && error.cause().micro_batch == 3,
         "the cause is another");
  expect_part(error.cause().message, std::string(1000, 'x'));
}

void calls_that_do_not_match(World& world) {
  const Tensor tensor = tensor_of(50'000, is_last(world) ? DType::kI32 : DType::kF64);
  try {
    world.all().all_reduce(tensor, ReduceOp::kSum).wait();
  } catch (const PeerLost& error) {  // another rank saw it first
    expect_part(error.cause().message, "all_reduce (sum) of 50000 ");
    return;
  } catch (const TimedOut& error) {
    throw Surprise(error.what());
  } catch (const CommError& error) {
    expect_part(error.what(), "all_reduce (sum) of 50000 i32");
    expect_part(error.what(), "all_reduce (sum) of 50000 f64");
    expect_part(error.what(), "same collectives in the same order");
    expect(world.aborted(), "the world lives on");
    return;
  }
  throw Surprise("no exception");
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> kScenarios = {
      {"time_out_receive", 0.3, time_out_receive},
      {"time_out_send", 0.3, time_out_send},
      {"time_out_large_send", 0.3, time_out_large_send},
      {"time_out_collective", 2.0, time_out_collective},
      {"abort_wakes_all", 30.0, abort_wakes_all},
      {"abort_keeps_the_first_cause", 30.0, abort_keeps_the_first_cause},
      {"abort_leaves_a_dead_world", 30.0, abort_leaves_a_dead_world},
      {"abort_amid_work", 30.0, abort_amid_work},
      {"abort_from_another_thread", 30.0, abort_from_another_thread},
      {"abort_cuts_a_long_text", 30.0, abort_cuts_a_long_text},
      {"calls_that_do_not_match", 30.0, calls_that_do_not_match},
  };
  return kScenarios;
}

}  // namespace penstock::comm::testing
