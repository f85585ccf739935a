#include "engine/config_doc.h"

#include "config_support.h"
#include "engine/combinations.h"

namespace penstock::engine {
namespace {

TEST(ConfigDoc, PageEqualsTheTable) {
  EXPECT_EQ(test::file_text(PENSTOCK_GOLDEN_DIR "/../../docs/config.md"),
            config_reference_markdown())
      << "the key table changed: penstock-config-doc > docs/config.md";
}

TEST(ConfigDoc, CombinationsAreWhatTheParserSays) {
  EXPECT_EQ(test::file_text(PENSTOCK_GOLDEN_DIR "/../../docs/combinations.md"),
            combinations_markdown())
      << "what goes together changed: penstock-config-doc --combinations > docs/combinations.md";
}

TEST(ConfigDoc, ExampleIsAValidConfiguration) {
  const std::string page = config_reference_markdown();
  const auto fence = page.find("```json\n");
  ASSERT_NE(fence, std::string::npos);
  const auto begin = fence + 8;
  const Config config = parse_config(page.substr(begin, page.find("```", begin) - begin), "docs");
  EXPECT_EQ(config.batch.train_batch_size, 32);
  EXPECT_TRUE(config.without_effect.empty());
}

}  // namespace
}  // namespace penstock::engine
