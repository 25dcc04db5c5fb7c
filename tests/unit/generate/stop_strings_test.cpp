#include "generate/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace titan::generate {
namespace {

TEST(StopStrings, CutsBeforeTheFirst) {
  StopStrings stop({"END", "\n\n"});
  EXPECT_EQ(stop.add("one E"), "one ");
  EXPECT_EQ(stop.add("N"), "");
  EXPECT_EQ(stop.add("T\n"), "ENT");
  EXPECT_FALSE(stop.found());
  EXPECT_EQ(stop.add("\nrest"), "");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.add("more"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStrings, ReturnsWhatItHeldBack) {
  StopStrings stop({"aab"});
  EXPECT_EQ(stop.add("xaa"), "x");
  EXPECT_EQ(stop.add("a"), "a");
  EXPECT_EQ(stop.finish(), "aa");
  EXPECT_EQ(StopStrings({}).add("text"), "text");
}

// However a text is cut into pieces, what passes is the text before the stop string that ends first.
TEST(StopStrings, PiecesMakeNoDifference) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const auto word = [&](int least, int most) {
      std::string out;
      const int length = std::uniform_int_distribution(least, most)(random);
      for (int i = 0; i < length; ++i) out += "ab"[random() % 2];
      return out;
    };
    const std::string text = word(0, 12);
    const std::vector<std::string> strings = {word(1, 4), word(1, 4)};
    StopStrings stop(strings);
    std::string passed;
    for (std::size_t at = 0; at < text.size() && !stop.found();) {
      const std::size_t length = 1 + random() % 3;
      passed += stop.add(text.substr(at, length));
      at += length;
    }
    passed += stop.finish();
    std::string expected = text;
    for (std::size_t end = 1; end <= text.size() && expected == text; ++end)
      for (const std::string& string : strings)
        if (const std::string so_far = text.substr(0, end); so_far.ends_with(string))
          expected = std::min(expected, so_far.substr(0, end - string.size()),
                              [](const auto& one, const auto& other) { return one.size() < other.size(); });
    EXPECT_EQ(passed, expected) << text << " " << strings[0] << " " << strings[1];
  }
}

}  // namespace
}  // namespace titan::generate
