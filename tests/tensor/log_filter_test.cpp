// Which events pass a LogFilter.
#include "tensor/log_filter.h"

#include <string>

#include <gtest/gtest.h>

namespace penstock::tensor {
namespace {

class Kept final : public Log {
 public:
  void write(const LogEvent& event) noexcept override { text += event.message; }
  std::string text;
};

// Of the events a (stage 0, replica 0), b (1, 0), c (stages 1 and 2, replica 1), d (2, 1), and e,
// a trainer's own.
std::string kept(LogFilter::Wanted wanted) {
  Kept log;
  LogFilter filter(log, std::move(wanted));
  const auto write = [&](std::string message, std::vector<int> stages, int replica) {
    LogEvent event;
    event.message = std::move(message);
    event.stages = std::move(stages);
    event.data_index = replica;
    filter.write(event);
  };
  write("a", {0}, 0);
  write("b", {1}, 0);
  write("c", {1, 2}, 1);
  write("d", {2}, 1);
  write("e", {}, -1);
  return log.text;
}

TEST(LogFilter, PassesOnWhatIsOfAWantedStageAndReplica) {
  EXPECT_EQ(kept({}), "abcde");
  EXPECT_EQ(kept({.stages = {1}, .data_indices = {}}), "bce");
  EXPECT_EQ(kept({.stages = {0, 2}, .data_indices = {}}), "acde");
  EXPECT_EQ(kept({.stages = {}, .data_indices = {1}}), "cde");
  EXPECT_EQ(kept({.stages = {1}, .data_indices = {0}}), "be");
  EXPECT_EQ(kept({.stages = {7}, .data_indices = {}}), "e");
}

}  // namespace
}  // namespace penstock::tensor
