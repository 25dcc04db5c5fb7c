#include "apps/commands/generation/ordered_output.h"

#include <gtest/gtest.h>

namespace titan {
namespace {

TEST(OrderedOutput, PrintsRowsInTheirOrderAndTheFirstOneAtOnce) {
  std::string printed;
  OrderedOutput output([&](const std::string& text) { printed += text; });
  output.add(1, "b");
  output.add(0, "a");
  EXPECT_EQ(printed, "a");
  output.add(2, "c");
  output.end(2);
  output.add(1, "b");
  EXPECT_EQ(printed, "a");
  output.end(0);
  EXPECT_EQ(printed, "abb") << "row 1 is the first now, and row 2 waits for it";
  output.add(1, "B");
  EXPECT_EQ(printed, "abbB");
  output.end(1);
  EXPECT_EQ(printed, "abbBc");
  output.add(3, "d");
  output.end(3);
  EXPECT_EQ(printed, "abbBcd");
}

}  // namespace
}  // namespace titan
