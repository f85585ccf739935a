// Which device each rank gets, what is refused, and what messages say about their tensors.
#include "comm/device/devices.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/device/facts.h"
#include "comm/error.h"
#include "tensor/error.h"

namespace penstock::comm {
namespace {

using tensor::DType;
using tensor::InvalidArgument;
using tensor::Shape;
using tensor::Tensor;

// A host "h<n>" with so many ranks and devices; the next ranks of a world.
void add_host(std::vector<RankDevice>& ranks, int count, int devices) {
  const int leader = static_cast<int>(ranks.size());
  for (int local = 0; local < count; ++local) {
    RankDevice& rank = ranks.emplace_back();
    rank.host = leader;
    rank.host_name = "h" + std::to_string(leader);
    rank.host_rank = local;
    rank.host_size = count;
    rank.device_count = devices;
    rank.device = device_of_local_rank(local, devices);
    if (rank.device >= 0) rank.device_id = "0000:0" + std::to_string(rank.device) + ":00.0";
    rank.nccl = true;
    rank.connections = 32;
    rank.loads_late = false;
  }
}

std::vector<RankDevice> hosts(int count, int ranks_each, int devices_each) {
  std::vector<RankDevice> ranks;
  for (int i = 0; i < count; ++i) add_host(ranks, ranks_each, devices_each);
  return ranks;
}

template <class E>
std::string refusal(const std::vector<RankDevice>& ranks, const DeviceOptions& options) {
  try {
    choose_transport(ranks, options);
  } catch (const E& error) {
    return error.what();
  }
  return "no exception";
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(DeviceOfLocalRank, CountsFromTheFirst) {
  EXPECT_EQ(device_of_local_rank(0, 4), 0);
  EXPECT_EQ(device_of_local_rank(3, 4), 3);
  EXPECT_EQ(device_of_local_rank(5, 4), 1);
  EXPECT_EQ(device_of_local_rank(2, 1), 0);
  EXPECT_EQ(device_of_local_rank(0, 0), -1);
}

TEST(ChooseTransport, TakesNcclWhereEachRankHasADevice) {
  EXPECT_EQ(choose_transport(hosts(1, 4, 4), {}), Transport::kNccl);
  EXPECT_EQ(choose_transport(hosts(2, 4, 8), {}), Transport::kNccl);
  // Equal local ranks and equal ids on two hosts are different devices.
  EXPECT_EQ(choose_transport(hosts(2, 1, 1), {}), Transport::kNccl);
  EXPECT_EQ(choose_transport(hosts(1, 4, 4), {.transport = Transport::kStaged}),
            Transport::kStaged);
  EXPECT_EQ(choose_transport(hosts(1, 1, 1), {}), Transport::kStaged);
}

TEST(ChooseTransport, BelievesALauncherThatShowsEachRankOneDevice) {
  std::vector<RankDevice> ranks = hosts(1, 2, 1);
  ranks[1].device_id = "0000:17:00.0";
  EXPECT_EQ(choose_transport(ranks, {}), Transport::kNccl);
}

TEST(ChooseTransport, RefusesMoreRanksThanDevices) {
  const std::vector<RankDevice> ranks = hosts(1, 4, 1);
  const std::vector<std::string> facts = {"rank 1 (local rank 1 of the 4 on host h0",
                                          "sees 1 device)", "rank 0 (local rank 0", "0000:00:00.0"};
  expect_parts(refusal<InvalidArgument>(ranks, {}), facts);
  const DeviceOptions nccl{.transport = Transport::kNccl, .sharing = true};
  expect_parts(refusal<InvalidArgument>(ranks, nccl), facts);
  EXPECT_EQ(choose_transport(ranks, {.sharing = true}), Transport::kStaged);
  std::vector<RankDevice> uneven = hosts(1, 2, 2);
  add_host(uneven, 3, 2);
  expect_parts(refusal<InvalidArgument>(uneven, {}),
               {"rank 4 (local rank 2 of the 3 on host h2, where it sees 2 devices)"});
}

TEST(ChooseTransport, RefusesRanksWithoutADevice) {
  std::vector<RankDevice> ranks = hosts(1, 2, 2);
  add_host(ranks, 2, 0);
  expect_parts(refusal<InvalidArgument>(ranks, {.sharing = true}),
               {"rank 2 (local rank 0 of the 2 on host h2, where it sees 0 devices)",
                "CUDA_VISIBLE_DEVICES"});
}

TEST(ChooseTransport, NeedsNcclOnEveryRank) {
  std::vector<RankDevice> ranks = hosts(1, 3, 3);
  ranks[1].nccl = false;
  EXPECT_EQ(choose_transport(ranks, {}), Transport::kStaged);
  expect_parts(refusal<tensor::Unsupported>(ranks, {.transport = Transport::kNccl}),
               {"rank 1", "PENSTOCK_NCCL"});
}

TEST(ChooseTransport, NeedsConnections) {
  std::vector<RankDevice> ranks = hosts(1, 2, 2);
  ranks[1].connections = 8;
  expect_parts(refusal<InvalidArgument>(ranks, {}),
               {"rank 1", "CUDA_DEVICE_MAX_CONNECTIONS at 8", "prepare_devices()"});
  EXPECT_EQ(choose_transport(ranks, {.transport = Transport::kStaged}), Transport::kStaged);
}

TEST(ChooseTransport, NeedsKernelsThatAreLoaded) {
  std::vector<RankDevice> ranks = hosts(1, 2, 2);
  ranks[1].loads_late = true;
  expect_parts(refusal<InvalidArgument>(ranks, {}),
               {"rank 1", "CUDA_MODULE_LOADING to EAGER", "prepare_devices()"});
  EXPECT_EQ(choose_transport(ranks, {.transport = Transport::kStaged}), Transport::kStaged);
}

TEST(ChooseTransport, NeedsNcclToLeaveOtherDevicesAlone) {
  std::vector<RankDevice> ranks = hosts(1, 2, 2);
  ranks[0].reaches_peers = true;
  expect_parts(refusal<InvalidArgument>(ranks, {}),
               {"rank 0", "NCCL_P2P_DIRECT_DISABLE to 1", "prepare_devices()"});
  EXPECT_EQ(choose_transport(ranks, {.transport = Transport::kStaged}), Transport::kStaged);
}

TEST(MakeDeviceCommunicator, LeavesTheHostsAsItIs) {
  run_local(2, {.timeout_seconds = 60.0}, [](World& world) {
    auto host = world.all().split(0, world.rank());
    Communicator* const before = host.get();
    const auto same = make_device_communicator(world, std::move(host), Transport::kStaged,
                                               tensor::make_cpu_allocator(), Links::kAllPairs);
    EXPECT_EQ(same.get(), before);
    same->close();
    world.close();
  });
}

TEST(MessageFacts, ComeBackAsTheyWere) {
  const auto memory = tensor::make_cpu_allocator();
  const device::MessageFacts facts{.number = 7,
                                   .tensors = {{true, DType::kBF16, {2, 0, 3}},
                                               {false, DType::kBool, {}},
                                               {true, DType::kI16, {5}}},
                                   .needs_grad = {1, 0, 0},
                                   .whole_shapes = {{4, 0, 3}, {}, {5}}};
  const device::MessageFacts got = device::decode(device::encode(facts, memory));
  EXPECT_EQ(got.number, 7);
  ASSERT_EQ(got.tensors.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got.tensors[i].on_device, facts.tensors[i].on_device);
    EXPECT_EQ(got.tensors[i].dtype, facts.tensors[i].dtype);
    EXPECT_EQ(got.tensors[i].shape, facts.tensors[i].shape);
  }
  EXPECT_EQ(got.needs_grad, facts.needs_grad);
  EXPECT_EQ(got.whole_shapes, facts.whole_shapes);
}

TEST(MessageFacts, RefuseSomethingElse) {
  const tensor::Context context(tensor::make_cpu_allocator());
  EXPECT_THROW(device::decode(Tensor::zeros(context, {3}, DType::kI64)), CommError);
  EXPECT_THROW(device::decode(Tensor::zeros(context, {}, DType::kF32)), CommError);
  const Tensor good = device::encode(
      {.number = 1, .tensors = {{true, DType::kF32, {3}}}, .needs_grad = {0}, .whole_shapes = {}},
      context.allocator);
  EXPECT_THROW(device::decode(good.rows(0, good.numel() - 1)), CommError);
  good.data<std::int64_t>()[4] = tensor::kNumDTypes;
  EXPECT_THROW(device::decode(good), CommError);
}

}  // namespace
}  // namespace penstock::comm
