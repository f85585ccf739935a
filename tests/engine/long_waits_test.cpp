// While a rank writes a checkpoint, the others wait by the checkpoint's time-out.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

// What fsync() sees of the world of the thread that calls it.
thread_local const comm::World* watched = nullptr;
thread_local double seen = 0.0;

}  // namespace
}  // namespace penstock::testing

// In the place of the C library's, for all that is linked into this program.
extern "C" int fsync(int fd) {
  if (penstock::testing::watched != nullptr) {
    penstock::testing::seen = penstock::testing::watched->timeout_seconds();
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace penstock::testing {
namespace {

TEST(LongWaits, LastAsLongAsASave) {
  RunSpec run{.pipe = 2};
  run.more = R"({"checkpoint": {"timeout_seconds": 4321}})";
  const TemporaryFolder folder;
  const auto seen_by = on_ranks<double>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64));
    engine.train_batch();
    watched = &world;
    engine.save_checkpoint(folder.path());
    watched = nullptr;
    EXPECT_EQ(world.timeout_seconds(), kTimeoutSeconds);
    engine.close();
    return seen;
  });
  EXPECT_EQ(seen_by, (std::vector<double>{4321, 4321}));
}

}  // namespace
}  // namespace penstock::testing
