#include "engine/config_match.h"

#include "config_support.h"
#include "engine/config_suggest.h"

namespace penstock::engine {
namespace {

TEST(NamePatterns, FirstMatchWinsAnywhereInTheName) {
  const std::vector<std::string> patterns = {"bias$", "^0\\.", "weight"};
  const NamePatterns names(patterns);
  EXPECT_EQ(names.first_match("0.bias"), 0u);
  EXPECT_EQ(names.first_match("0.weight"), 1u);
  EXPECT_EQ(names.first_match("10.weight"), 2u);
  EXPECT_EQ(names.first_match("10.Weight"), std::nullopt);
  EXPECT_EQ(NamePatterns({}).first_match("0.bias"), std::nullopt);
}

TEST(NamePatterns, RefusesWhatIsNoPattern) {
  const std::vector<std::string> patterns = {"a", "(b"};
  EXPECT_HAS(test::error_of([&] { const NamePatterns names(patterns); }),
             "\"(b\": not a regular expression");
}

TEST(Suggest, DistanceCountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2u);
}

TEST(Suggest, OnlyNearWordsAreMeant) {
  EXPECT_EQ(nearest("clpping", {"seed", "clipping", "clapping"}), "clipping");
  EXPECT_EQ(nearest("momentum", {"betas", "eps"}), "");
  EXPECT_EQ(nearest("rl", {"lr"}), "") << "two edits of two letters are another word";
  EXPECT_EQ(nearest(std::string(100, 'x'), {"x"}), "");
}

}  // namespace
}  // namespace penstock::engine
