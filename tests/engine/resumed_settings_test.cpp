// What is said of the settings that a resumed run changes.
#include "engine/resumed_settings.h"

#include <gtest/gtest.h>

namespace penstock::engine {
namespace {

using Changes = std::vector<std::string>;

TEST(ResumedSettings, AreNamedWithBothValues) {
  EXPECT_EQ(changed_settings(
                R"({"optimizer": {"type": "Adam", "params": {"lr": 0.1, "betas": [0.9, 0.95]}}})",
                R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.1, "betas": [0.9, 0.99]}}})"),
            (Changes{"optimizer.params.betas was [0.9,0.95], is [0.9,0.99]",
                     "optimizer.type was \"Adam\", is \"AdamW\""}));
}

TEST(ResumedSettings, MayBeGivenOnOneSideOnly) {
  EXPECT_EQ(
      changed_settings(R"({"gradient_clipping": 0.5})", R"({"scheduler": {"type": "WarmupLR"}})"),
      (Changes{"scheduler.type was not given, is \"WarmupLR\"",
               "gradient_clipping was 0.5, is not given"}));
}

TEST(ResumedSettings, LeaveOutWhatAnyRunMayChange) {
  EXPECT_EQ(changed_settings(R"({"pipeline": {"stages": 2}, "threads_per_rank": 1,
                                 "optimizer": {"params": {"lr": 1, "eps": 2}}})",
                             R"({"pipeline": {"stages": 4}, "steps_per_print": 3,
                                 "optimizer": {"params": {"eps": 2, "lr": 1}}})"),
            Changes{});
}

TEST(ResumedSettings, OfATextThatIsNoConfigurationAreAllNew) {
  EXPECT_EQ(changed_settings("not JSON", R"({"gradient_clipping": 2})"),
            (Changes{"gradient_clipping was not given, is 2"}));
}

}  // namespace
}  // namespace penstock::engine
