// Runs the contract on ranks that are processes: all of them run all tests, in step.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/comm/contract.h"

namespace penstock::comm::testing {

namespace {

World* world = nullptr;

}  // namespace

std::vector<int> world_sizes() {
  return {world->size()};
}

void run_ranks(int, const std::function<void(TestRank&)>& fn) {
  try {
    run_rank(*world, fn);
    world->all().barrier().wait();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", world->rank(), error.what());
    world->kill_job(1);
  }
}

// The premise of all other tests here: the ranks are as many as were started.
TEST(MpiWorld, HasTheRanksThatWereStarted) {
  ASSERT_TRUE(launched_by_mpi());
  const char* started = std::getenv("OMPI_COMM_WORLD_SIZE");
  ASSERT_NE(started, nullptr);
  EXPECT_EQ(world->size(), std::stoi(started));
  EXPECT_EQ(world->kind(), "mpi");
  EXPECT_EQ(world->host_size(), world->size());
  EXPECT_GE(world->host_cores(), 1);
  EXPECT_EQ(world->host_rank(), world->rank());
  EXPECT_EQ(world->host_leader(), 0);
  EXPECT_THROW(make_mpi_world({}), CommError);  // one for each process
}

}  // namespace penstock::comm::testing

int main(int argc, char** argv) {
  namespace comm = penstock::comm;
  ::testing::InitGoogleTest(&argc, argv);
  const std::unique_ptr<comm::World> world = comm::make_mpi_world({.timeout_seconds = 60.0});
  comm::testing::world = world.get();
  const int result = RUN_ALL_TESTS();
  world->close();
  return result;
}
