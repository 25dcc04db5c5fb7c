#include "base/limits/parse_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json_error.h"

namespace titan {
namespace {

using Json = nlohmann::json;

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ParseJson, RefusesWhatWouldOverflowTheStackWhenCopiedOrPrinted) {
  EXPECT_EQ(parse_json<Json>(nested(kDeepestJson)).dump(), nested(kDeepestJson));
  try {
    parse_json<Json>(nested(1'000'000));
    FAIL();
  } catch (const Json::exception& error) {
    EXPECT_NE(json_error_text(error.what()).find("more than 500 arrays and objects"), std::string::npos);
  }
  EXPECT_TRUE(try_parse_json<Json>(nested(kDeepestJson + 1)).is_discarded());
  EXPECT_TRUE(try_parse_json<nlohmann::ordered_json>(std::string(1'000'000, '[')).is_discarded());
}

TEST(ParseJson, CountsOnlyWhatIsInsideEachOther) {
  std::string flat = "[";
  for (int i = 0; i < 2000; ++i) flat += "{},[],";
  EXPECT_EQ(parse_json<Json>(flat + "1]").size(), 4001u);
  const std::string text = "\"" + std::string(2000, '[') + "\\\"" + std::string(2000, '{') + "\"";
  EXPECT_EQ(parse_json<Json>(text).get<std::string>().size(), 4001u);
  EXPECT_TRUE(is_too_deep("[[[]]]", 2));
  EXPECT_FALSE(is_too_deep("[[][]]", 2));
}

TEST(IntegerOf, IsNotCutOff) {
  EXPECT_EQ(integer_of(Json::parse("-3")), -3);
  EXPECT_EQ(integer_of(Json::parse("9223372036854775807")), INT64_MAX);
  for (const char* other :
       {"9223372036854775808", "18446744073709551615", "1.5", "2.0", "1e3", "true", "null", "\"1\""})
    EXPECT_EQ(integer_of(Json::parse(other)), std::nullopt) << other;
  EXPECT_EQ(find_integer(Json::parse("{\"step\": 4}"), "step"), 4);
  EXPECT_EQ(find_integer(Json::parse("{\"a\": 4}"), "step"), std::nullopt);
  EXPECT_EQ(find_integer(Json::parse("[4]"), "step"), std::nullopt);
}

}  // namespace
}  // namespace titan
