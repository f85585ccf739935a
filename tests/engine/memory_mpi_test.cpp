// Pipe buffers under mpirun hold what the plan says, which is what ranks as threads hold.
#include <gtest/gtest.h>

#include "tests/engine/memory_checks.h"
#include "tests/support/mpi_main.h"

namespace penstock::testing {
namespace {

TEST(MemoryMpi, IsAsPlanned) {
  ASSERT_EQ(mpi_world().kind(), "mpi");
  const int ranks = mpi_world().size();
  for (const Subject& subject : {mlp(12), gpt12()}) {
    for (const ScheduleRun& run : runs_of_all(ranks, 2, 2 * ranks + 1)) {
      SCOPED_TRACE(subject.name + " " + run.text());
      expect_as_planned(measure_training(mpi_world(), subject, run));
      expect_as_planned(measure_evaluation(mpi_world(), subject, run, 2 * ranks + 1));
    }
  }
}

}  // namespace
}  // namespace penstock::testing
