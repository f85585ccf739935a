// Pipe buffers under mpirun hold what the plan says, which is what ranks as threads hold.
#include <memory>

#include <gtest/gtest.h>

#include "tests/engine/memory_checks.h"

namespace penstock::testing {
namespace {

std::unique_ptr<comm::World> mpi;

TEST(MemoryMpi, IsAsPlanned) {
  ASSERT_EQ(mpi->kind(), "mpi");
  const int ranks = mpi->size();
  for (const Subject& subject : {mlp(12), gpt12()}) {
    for (const ScheduleRun& run : runs_of_all(ranks, 2, 2 * ranks + 1)) {
      SCOPED_TRACE(subject.name + " " + run.text());
      expect_as_planned(measure_training(*mpi, subject, run));
      expect_as_planned(measure_evaluation(*mpi, subject, run, 2 * ranks + 1));
    }
  }
}

}  // namespace
}  // namespace penstock::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  penstock::testing::mpi =
      penstock::comm::make_mpi_world({.timeout_seconds = penstock::testing::kTimeoutSeconds});
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) penstock::testing::mpi->kill_job(failed);
  penstock::testing::mpi->close();
  penstock::testing::mpi.reset();
  return 0;
}
