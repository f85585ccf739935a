#include "engine/config_override.h"

#include "config_support.h"
#include "engine/json_parse.h"

namespace penstock::engine {
namespace {

using test::config_error;

std::string after(const std::string& document, const std::string& assignment) {
  JsonValue root = parse_json(document, "a.json");
  apply_override(root, assignment);
  return canonical_json(root);
}

std::string override_error(const std::string& document, const std::string& assignment) {
  SCOPED_TRACE(assignment);
  return test::error_of([&] { after(document, assignment); });
}

TEST(ConfigOverride, ReplacesAddsAndNests) {
  EXPECT_EQ(after(R"({"a":1})", "a=2"), R"({"a":2})");
  EXPECT_EQ(after(R"({"a":1})", "b.c.d=true"), R"({"a":1,"b":{"c":{"d":true}}})");
  EXPECT_EQ(after(R"({"a":{"b":1,"c":2}})", "a.b=[1,2]"), R"({"a":{"b":[1,2],"c":2}})");
  EXPECT_EQ(after(R"({"a":null})", "a.b=1"), R"({"a":{"b":1}})");
  EXPECT_EQ(after(R"({"a":[{"b":1},{"b":2}]})", "a.1.b=3"), R"({"a":[{"b":1},{"b":3}]})");
}

TEST(ConfigOverride, IsText) {
  EXPECT_HAS(override_error("{}", "a=\xe9"), ": expected UTF-8 text");
  EXPECT_HAS(override_error("{}", "wandb.\xc3=1"), ": expected UTF-8 text");
  EXPECT_EQ(after("{}", "a=\xc3\xa9"), "{\"a\":\"\xc3\xa9\"}");
}

TEST(ConfigOverride, TakesJsonElseAString) {
  EXPECT_EQ(after("{}", "a=3e-4"), R"({"a":0.0003})");
  EXPECT_EQ(after("{}", "a=Adam"), R"({"a":"Adam"})");
  EXPECT_EQ(after("{}", "a=\"4\""), R"({"a":"4"})");
  EXPECT_EQ(after("{}", "a="), R"({"a":""})");
  EXPECT_EQ(after("{}", "a=type:x=y"), R"({"a":"type:x=y"})");
  EXPECT_EQ(after("{}", "a=1F1B"), R"({"a":"1F1B"})");
  EXPECT_EQ(after("{}", "a=null"), R"({"a":null})");
}

TEST(ConfigOverride, RefusesBadForms) {
  EXPECT_HAS(override_error("{}", "a"), "--set a: expected path=value");
  EXPECT_HAS(override_error("{}", "=1"), "the path has an empty part");
  EXPECT_HAS(override_error("{}", "a..b=1"), "the path has an empty part");
  EXPECT_HAS(override_error(R"({"a":1})", "a.b=1"), "\"b\" lies below a value that is no section");
  EXPECT_HAS(override_error(R"({"a":[1]})", "a.1=2"), "\"1\" is no element of a list of 1");
  EXPECT_HAS(override_error(R"({"a":[1]})", "a.x=2"), "is no element of a list");
  EXPECT_HAS(override_error("{}", "a={\"b\":1,\"b\":2}"), "duplicate key \"b\"");
  EXPECT_HAS(override_error("{}", "a=[1"), "unexpected end of input");
}

TEST(ConfigOverride, IsCheckedLikeTheFile) {
  const std::vector<std::string> good = {"optimizer.type=sgd", "optimizer.params.lr=3e-4",
                                         "pipeline.stages=2"};
  const Config config = parse_config("{\"seed\": 3}", "a.json", good);
  EXPECT_EQ(config.optimizer->options.lr, 3e-4);
  EXPECT_EQ(config.pipeline.stages, 2);
  EXPECT_EQ(config.seed, 3u);
  const std::vector<std::string> misspelt = {
      "optimizer={\"type\": \"SGD\", \"params\": {\"l\": 1}}"};
  EXPECT_HAS(config_error("{}", misspelt), "test.json (--set): optimizer.params.l: unknown key");
  const std::vector<std::string> typed = {"seed=many"};
  EXPECT_HAS(config_error("{}", typed), "(--set): seed: expected int, got the string \"many\"");
}

}  // namespace
}  // namespace penstock::engine
