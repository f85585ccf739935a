// Emulated NCCL: calls meet by their order in a communicator, those that do not fit are faults, and
// orders on which the real library would hang end with an error.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include "tests/cuda_emulation/emulated_test.h"

namespace penstock::cuda_emulation {
namespace {

using testing::HasSubstr;

void expect_success(ncclResult_t result) {
  EXPECT_EQ(result, ncclSuccess) << ncclGetErrorString(result);
}
using cuda_emulation::expect_success;

// One rank, on its thread and its device.
struct Rank {
  int rank;
  ncclComm_t comm;
  cudaStream_t stream;
  float* data;  // 8 floats: 10·rank, 10·rank + 1, …

  std::vector<float> values() const { return read(data, 8, stream); }
};

class Nccl : public EmulatedTest {
 protected:
  // Runs a program as each of the ranks. `ends` says that it comes to its end without a fault.
  void run(int ranks, const Options& base, const std::function<void(Rank&)>& program,
           bool ends = true) {
    Options options = base;
    options.devices = ranks;
    start(options);
    ncclUniqueId id;
    expect_success(ncclGetUniqueId(&id));
    std::vector<std::thread> threads;
    for (int i = 0; i < ranks; ++i) {
      threads.emplace_back([=] {
        Rank rank{i, nullptr, make_stream(i), nullptr};
        expect_success(ncclCommInitRank(&rank.comm, ranks, id, i));
        rank.data = make_block(8, rank.stream);
        std::vector<float> values;
        for (int k = 0; k < 8; ++k) values.push_back(static_cast<float>(10 * i + k));
        write(rank.data, values, rank.stream);
        program(rank);
        cudaFreeAsync(rank.data, rank.stream);
        cudaStreamDestroy(rank.stream);
        if (rank.comm != nullptr && ends) expect_success(ncclCommDestroy(rank.comm));
        if (rank.comm != nullptr && !ends) ncclCommAbort(rank.comm);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

constexpr std::chrono::milliseconds kSoon{200};

TEST_F(Nccl, PairsMeetInTheirOrder) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    run(2, {.seed = seed}, [](Rank& rank) {
      for (int i = 0; i < 4; ++i) {
        if (rank.rank == 0) {
          expect_success(ncclSend(rank.data + i, 1, ncclFloat, 1, rank.comm, rank.stream));
        } else {
          expect_success(ncclRecv(rank.data + i, 1, ncclFloat, 0, rank.comm, rank.stream));
        }
      }
      if (rank.rank == 1) {
        EXPECT_EQ(rank.values(), (std::vector<float>{0, 1, 2, 3, 14, 15, 16, 17}));
      }
    });
  }
  EXPECT_EQ(counters().nccl_calls,
            (std::map<std::string, std::int64_t>{{"ncclSend", 4}, {"ncclRecv", 4}}));
}

void exchange(Rank& rank, bool grouped) {
  const int peer = 1 - rank.rank;
  if (grouped) expect_success(ncclGroupStart());
  ncclSend(rank.data, 4, ncclFloat, peer, rank.comm, rank.stream);
  ncclRecv(rank.data + 4, 4, ncclFloat, peer, rank.comm, rank.stream);
  if (grouped) expect_success(ncclGroupEnd());
}

TEST_F(Nccl, GroupedCallsMayCross) {
  run(2, {}, [](Rank& rank) {
    exchange(rank, true);
    const float peer = static_cast<float>(10 - 10 * rank.rank);
    EXPECT_EQ(rank.values()[4], peer);
    EXPECT_EQ(rank.values()[7], peer + 3);
  });
}

TEST_F(Nccl, UngroupedCallsThatCrossHang) {
  run(
      2, {.patience = kSoon},
      [](Rank& rank) {
        exchange(rank, false);
        EXPECT_NE(cudaStreamSynchronize(rank.stream), cudaSuccess);
      },
      false);
  EXPECT_THAT(planted_fault(), HasSubstr("waits for ever"));
  EXPECT_THAT(planted_fault(), HasSubstr("the answer to ncclSend of 4 float32 to rank"));
}

TEST_F(Nccl, CollectivesGiveEveryRankItsPart) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    run(3, {.seed = seed}, [](Rank& rank) {
      const int r = rank.rank;
      float* sum = make_block(8, rank.stream);
      float* all = make_block(24, rank.stream);
      expect_success(ncclAllReduce(rank.data, sum, 8, ncclFloat, ncclSum, rank.comm, rank.stream));
      EXPECT_EQ(read(sum, 8, rank.stream), (std::vector<float>{30, 33, 36, 39, 42, 45, 48, 51}));
      expect_success(
          ncclReduceScatter(rank.data, sum, 2, ncclFloat, ncclAvg, rank.comm, rank.stream));
      EXPECT_EQ(read(sum, 1, rank.stream)[0], static_cast<float>(10 + 2 * r));
      expect_success(ncclAllGather(rank.data, all, 8, ncclFloat, rank.comm, rank.stream));
      EXPECT_EQ(read(all + 17, 1, rank.stream)[0], 21);
      expect_success(ncclReduce(rank.data, sum, 8, ncclFloat, ncclMax, 1, rank.comm, rank.stream));
      if (r == 1) {
        EXPECT_EQ(read(sum, 8, rank.stream)[7], 27);
      }
      expect_success(ncclBroadcast(rank.data, rank.data, 8, ncclFloat, 2, rank.comm, rank.stream));
      EXPECT_EQ(rank.values()[0], 20);
      cudaFreeAsync(sum, rank.stream);
      cudaFreeAsync(all, rank.stream);
    });
  }
}

TEST_F(Nccl, SumsGoUpFromRankZero) {
  run(3, {}, [](Rank& rank) {
    // 1e8 - 1e8 + 1 is 1 in this order alone.
    write(rank.data, {rank.rank == 0 ? 1e8f : rank.rank == 1 ? -1e8f : 1.0f}, rank.stream);
    expect_success(
        ncclAllReduce(rank.data, rank.data, 1, ncclFloat, ncclSum, rank.comm, rank.stream));
    EXPECT_EQ(rank.values()[0], 1);
  });
}

TEST_F(Nccl, DifferentCountsAreAFault) {
  run(
      2, {.patience = kSoon},
      [](Rank& rank) {
        const std::size_t count = rank.rank == 0 ? 4 : 5;
        ncclAllReduce(rank.data, rank.data, count, ncclFloat, ncclSum, rank.comm, rank.stream);
        EXPECT_NE(cudaStreamSynchronize(rank.stream), cudaSuccess);
      },
      false);
  EXPECT_THAT(planted_fault(), HasSubstr("rank 0 called ncclAllReduce of 4 float32, and rank 1 "
                                         "called ncclAllReduce of 5 float32"));
}

TEST_F(Nccl, DifferentOrdersOfCollectivesAreAFault) {
  run(
      2, {.patience = kSoon},
      [](Rank& rank) {
        float* all = make_block(16, rank.stream);
        for (const int which : {rank.rank, 1 - rank.rank}) {
          if (which == 0) {
            ncclAllReduce(rank.data, rank.data, 8, ncclFloat, ncclSum, rank.comm, rank.stream);
          } else {
            ncclAllGather(rank.data, all, 8, ncclFloat, rank.comm, rank.stream);
          }
        }
        EXPECT_NE(cudaStreamSynchronize(rank.stream), cudaSuccess);
      },
      false);
  EXPECT_THAT(planted_fault(), HasSubstr("called ncclAllReduce of 8 float32, and rank 1 called "
                                         "ncclAllGather of 8 float32"));
}

TEST_F(Nccl, AnUnmatchedCollectiveEndsTheWait) {
  run(
      2, {.patience = kSoon},
      [](Rank& rank) {
        if (rank.rank == 0) return;
        ncclAllReduce(rank.data, rank.data, 8, ncclFloat, ncclSum, rank.comm, rank.stream);
        EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaErrorLaunchTimeout);
      },
      false);
  EXPECT_THAT(planted_fault(), HasSubstr("for rank 1 (of 2) the answer to ncclAllReduce of 8"));
}

TEST_F(Nccl, AnUnmatchedCallIsLeftOver) {
  run(2, {}, [](Rank& rank) {
    if (rank.rank == 0) {
      ncclSend(rank.data, 1, ncclFloat, 1, rank.comm, rank.stream);
      // The stream is still there when the test looks.
      EXPECT_THAT(leftovers(), testing::Contains(HasSubstr("the first being ncclSend of 1 float")));
    }
    ncclCommAbort(rank.comm);
    rank.comm = nullptr;
  });
}

TEST_F(Nccl, AnAbortEndsWhatIsQueued) {
  run(2, {}, [](Rank& rank) {
    if (rank.rank == 1) return;  // never answers
    ncclRecv(rank.data, 4, ncclFloat, 1, rank.comm, rank.stream);
    EXPECT_EQ(cudaStreamQuery(rank.stream), cudaErrorNotReady);
    std::thread watchdog([&] { ncclCommAbort(std::exchange(rank.comm, nullptr)); });
    expect_success(cudaStreamSynchronize(rank.stream));
    watchdog.join();
  });
}

TEST_F(Nccl, ABrokenCommunicatorTells) {
  run(2, {}, [](Rank& rank) {
    ncclResult_t error = ncclInternalError;
    expect_success(ncclCommGetAsyncError(rank.comm, &error));
    EXPECT_EQ(error, ncclSuccess);
    break_communicators(rank.rank);
    expect_success(ncclCommGetAsyncError(rank.comm, &error));
    EXPECT_EQ(error, ncclSystemError);
    EXPECT_EQ(ncclSend(rank.data, 1, ncclFloat, 1, rank.comm, rank.stream), ncclSystemError);
  });
}

TEST_F(Nccl, RanksOnOneDeviceAreRefused) {
  start();
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  ncclComm_t first = nullptr, second = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  EXPECT_EQ(ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclInvalidUsage);
  ncclCommAbort(first);
}

TEST_F(Nccl, AMissingRankEndsTheStart) {
  start({.devices = 2, .patience = kSoon});
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclUnhandledCudaError);
  EXPECT_THAT(planted_fault(), HasSubstr("the start of communicator"));
  ncclCommAbort(comm);
}

TEST_F(Nccl, AReceivedBlockMustBeOfTheDevice) {
  run(
      1, {},
      [](Rank& rank) {
        EXPECT_NE(ncclAllGather(rank.data, rank.data, 9, ncclFloat, rank.comm, rank.stream),
                  ncclSuccess);
      },
      false);
  EXPECT_THAT(planted_fault(), HasSubstr("not in one block of a device"));
}

}  // namespace
}  // namespace penstock::cuda_emulation
