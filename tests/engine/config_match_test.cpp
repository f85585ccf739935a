#include "engine/config_match.h"

#include "config_support.h"
#include "engine/config_suggest.h"
#include "model/name_patterns.h"

namespace penstock::engine {
namespace {

TEST(GroupPatterns, FirstMatchWinsAnywhereInTheName) {
  const std::vector<std::string> patterns = {"bias$", "^0\\.", "weight"};
  const model::NamePatterns names(patterns, "optimizer.groups");
  EXPECT_EQ(names.first_match("0.bias"), 0u);
  EXPECT_EQ(names.first_match("0.weight"), 1u);
  EXPECT_EQ(names.first_match("10.weight"), 2u);
  EXPECT_EQ(names.first_match("10.Weight"), std::nullopt);
  EXPECT_EQ(model::NamePatterns({}).first_match("0.bias"), std::nullopt);
}

TEST(RegexFault, SaysWhatIsNoPattern) {
  EXPECT_EQ(regex_fault("a|b$"), std::nullopt);
  EXPECT_TRUE(regex_fault("(b").value().starts_with("not a regular expression"));
  EXPECT_EQ(regex_fault("^12345\\.a{1,12}"), std::nullopt);
  for (const char* number : {"(a)\\77580892036857204771", "a{99999}", "a{1,99999}"}) {
    EXPECT_TRUE(regex_fault(number).value().starts_with("not a regular expression: a number"));
  }
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
