#include "engine/json_parse.h"

#include "config_support.h"

namespace penstock::engine {
namespace {

std::string parse_error(const std::string& text) {
  SCOPED_TRACE(text.substr(0, 100));
  return test::error_of([&] { parse_json(text, "a.json"); });
}

TEST(JsonParse, KeepsOrderKindsAndLines) {
  const JsonValue root = parse_json(
      "{\n \"b\": 4,\n \"a\":\n [1.5,\n true, null\n], \"c\": \"x\\u00e9\",\n\"d\": 5e8\n}",
      "a.json");
  const auto& members = *root.get_if<JsonValue::Object>();
  ASSERT_EQ(members.size(), 4u);
  EXPECT_EQ(members[0].name, "b");
  EXPECT_EQ(members[0].value.line, 2);
  EXPECT_EQ(members[0].value.as_int(), 4);
  const auto& items = *root.find("a")->get_if<JsonValue::Array>();
  EXPECT_EQ(root.find("a")->line, 4);
  EXPECT_EQ(items[0].line, 4);
  EXPECT_EQ(items[0].as_number(), 1.5);
  EXPECT_FALSE(items[0].as_int());
  EXPECT_EQ(items[1].line, 5);
  EXPECT_TRUE(items[2].is_null());
  EXPECT_EQ(*root.find("c")->get_if<std::string>(), "x\xc3\xa9");
  EXPECT_EQ(root.find("d")->as_int(), 500'000'000);
  EXPECT_EQ(root.find("d")->line, 7) << "the newline after a number does not belong to it";
  EXPECT_EQ(root.find("e"), nullptr);
}

TEST(JsonParse, TellsIntegersFromNumbers) {
  EXPECT_EQ(parse_json("9223372036854775807", "a").as_int(), INT64_MAX);
  EXPECT_EQ(parse_json("-9223372036854775808", "a").as_int(), INT64_MIN);
  EXPECT_FALSE(parse_json("9223372036854775808", "a").as_int()) << "one more than int64 holds";
  EXPECT_FALSE(parse_json("1e300", "a").as_int());
  EXPECT_FALSE(parse_json("true", "a").as_int());
  EXPECT_FALSE(parse_json("\"4\"", "a").as_number());
}

TEST(JsonParse, NamesLineAndColumnOfAFault) {
  EXPECT_HAS(parse_error("{\"a\": 1,\n \"b\" 2}"), "a.json, line 2, column 7: JSON syntax error");
  EXPECT_HAS(parse_error("{\"a\": 1} x"), "a.json, line 1, column 10");
  EXPECT_HAS(parse_error("{\"a\": 1}\n{}"), "expected end of input");
  EXPECT_HAS(parse_error("{\"a\": 1e999}"), "a.json, line 1");
  EXPECT_HAS(parse_error("{\"a\": 1"), "unexpected end of input");
  EXPECT_HAS(parse_error("{\"a\": NaN}"), "line 1, column 7");
  EXPECT_HAS(parse_error("// c\n{}"), "line 1");
  EXPECT_HAS(parse_error("\"\xff\""), "UTF-8");
}

TEST(JsonParse, RefusesEmptyText) {
  EXPECT_HAS(parse_error(""), "a.json, line 1: the text is empty");
  EXPECT_HAS(parse_error(" \n\t"), "the text is empty");
}

TEST(JsonParse, RefusesDuplicateKeysAnywhere) {
  EXPECT_HAS(parse_error("{\"a\": 1,\n \"b\": {\"c\": 1,\n \"c\": 1}}"),
             "line 3, column 4: duplicate key \"c\" (first value on line 2)");
  EXPECT_NO_THROW(parse_json("{\"a\": {\"c\": 1}, \"b\": {\"c\": 1}}", "a"));
}

TEST(JsonParse, RefusesDeepNesting) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_NO_THROW(parse_json(nested(64), "a"));
  EXPECT_HAS(parse_error(nested(65)), "nested deeper than 64 levels");
  EXPECT_HAS(parse_error(std::string(1'000'000, '[')), "nested deeper");
}

TEST(JsonValue, CanonicalTextIgnoresLayoutAndOrder) {
  const std::string text = "{\"a\":[1,2.5,true,null,\"x\\\"\\n\"],\"b\":{\"c\":1e-08}}";
  EXPECT_EQ(canonical_json(parse_json(text, "a")), text);
  const std::string other =
      "{ \"b\": {\"c\": 0.00000001},\n \"a\": [1, 2.50, true, null, \"x\\\"\\n\"] }";
  EXPECT_EQ(canonical_json(parse_json(other, "a")), text);
}

}  // namespace
}  // namespace penstock::engine
