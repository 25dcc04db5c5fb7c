#include "base/json_error.h"

#include <gtest/gtest.h>

namespace titan {
namespace {

// Messages as nlohmann's library 3.11 writes them.
TEST(JsonError, SaysPlaceAndReason) {
  const auto error = explain_json_error(
      "[json.exception.parse_error.101] parse error at line 2, column 13: syntax error while parsing object key - "
      "invalid literal; last read: '{te'; expected string literal");
  EXPECT_EQ(error.line, 2);
  EXPECT_EQ(error.column, 13);
  EXPECT_EQ(error.reason, "invalid literal at '{te'; expected string literal");
  EXPECT_EQ(json_error_text("[json.exception.parse_error.101] parse error at line 1, column 6: syntax error while "
                            "parsing object separator - unexpected number literal; expected ':'"),
            "line 1, column 6: unexpected number literal; expected ':'");
}

TEST(JsonError, TellsWhatWasReadFromWhatWasExpected) {
  EXPECT_EQ(json_error_text("[json.exception.parse_error.101] parse error at line 1, column 9: syntax error while "
                            "parsing value - invalid string: missing closing quote; last read: '\"; expected x'"),
            "line 1, column 9: invalid string: missing closing quote at '\"; expected x'");
}

TEST(JsonError, LeavesOtherMessagesTheirWords) {
  EXPECT_EQ(json_error_text("[json.exception.out_of_range.403] key 'x' not found"), "key 'x' not found");
  EXPECT_EQ(json_error_text("it has no attention heads"), "it has no attention heads");
  EXPECT_EQ(explain_json_error("[json.exception.out_of_range.403] key 'x' not found").line, 0);
}

}  // namespace
}  // namespace titan
