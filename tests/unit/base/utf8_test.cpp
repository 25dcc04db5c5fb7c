#include "base/utf8.h"

#include <gtest/gtest.h>

namespace titan {
namespace {

TEST(FindInvalidUtf8, AcceptsEveryCodePointAndRejectsDamage) {
  EXPECT_FALSE(find_invalid_utf8(""));
  EXPECT_FALSE(find_invalid_utf8("plain text that is longer than one machine word"));
  EXPECT_FALSE(
      find_invalid_utf8(std::string_view("a\0b \xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xef\xbf\xbf", 21)));
  EXPECT_FALSE(find_invalid_utf8("\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf"));
  const std::string ascii = "0123456789";
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(find_invalid_utf8(ascii + bad), ascii.size());
    EXPECT_EQ(find_invalid_utf8(ascii + bad + ascii), ascii.size());
  }
}

TEST(EscapeInvalidUtf8, LeavesTheRestAsItIs) {
  EXPECT_EQ(escape_invalid_utf8("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(escape_invalid_utf8("caf\xe9/\xff"
                                "d"),
            "caf\\xE9/\\xFFd");
}

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("a\tb\ncaf\xc3\xa9 \xc2\xa0"), "a\tb\ncaf\xc3\xa9 \xc2\xa0");
  EXPECT_EQ(printable(std::string_view("\0\r\x1b[2J\x7f", 7)), "\\x00\\x0D\\x1B[2J\\x7F");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J \xff"),
            "\\xC2\\x9B2J \\xFF");
}

}  // namespace
}  // namespace titan
