#include "tests/support/mpi_main.h"

#include <memory>

#include <gtest/gtest.h>

#include "tests/support/timeout.h"

namespace penstock::testing {

namespace {

std::unique_ptr<comm::World> world;

int run_tests() {
  world = comm::make_mpi_world({.timeout_seconds = kTimeoutSeconds});
  // A rank whose tests fail ends the job: the others may wait for it.
  if (const int failed = RUN_ALL_TESTS(); failed != 0) world->kill_job(failed);
  world->close();
  world.reset();
  return 0;
}

}  // namespace

comm::World& mpi_world() {
  return *world;
}

}  // namespace penstock::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return penstock::testing::run_tests();
}
