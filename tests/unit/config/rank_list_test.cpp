#include "config/keys/rank_list.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace titan::config {
namespace {

TEST(RankList, AllAreAllRanks) {
  const RankList all("all");
  EXPECT_TRUE(all.contains(0) && all.contains(1000));
  EXPECT_EQ(all.highest(), -1);
}

TEST(RankList, NumbersAndRanges) {
  const RankList some("0, 4-6");
  EXPECT_TRUE(some.contains(0) && some.contains(4) && some.contains(6));
  EXPECT_FALSE(some.contains(1) || some.contains(3) || some.contains(7));
  EXPECT_EQ(some.highest(), 6);
}

TEST(RankList, AnythingElseIsRefused) {
  for (const char* wrong : {"", "none", "-1", "1-", "3-1", "1-2-3", "0,,1", "0x1", "1.5"})
    EXPECT_THROW(RankList list(wrong), ConfigError) << wrong;
}

}  // namespace
}  // namespace titan::config
