#include "base/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace titan {
namespace {

const std::vector<std::string> kKeys = {"steps", "seq_len", "local_batch_size", "global_batch_size", "lr", "dtype"};

TEST(NearestName, FindsTheTypo) {
  EXPECT_EQ(nearest_name("stesp", kKeys), "steps");  // swapped neighbours count as one edit
  EXPECT_EQ(nearest_name("seqlen", kKeys), "seq_len");
  EXPECT_EQ(nearest_name("local_batchsize", kKeys), "local_batch_size");
  EXPECT_EQ(nearest_name("d_type", kKeys), "dtype");
}

TEST(NearestName, IgnoresCaseAndDashes) {
  EXPECT_EQ(nearest_name("Seq-Len", kKeys), "seq_len");
  EXPECT_EQ(nearest_name("GLOBAL-BATCH-SIZE", kKeys), "global_batch_size");
}

TEST(NearestName, PrefersTheNearestAndOnEqualDistanceTheFirst) {
  EXPECT_EQ(nearest_name("global_batch_siz", kKeys), "global_batch_size");
  const std::vector<std::string> equal = {"abcx", "abcy"};
  EXPECT_EQ(nearest_name("abcd", equal), "abcx");
}

TEST(NearestName, NothingWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("checkpoint", kKeys), std::nullopt);
  EXPECT_EQ(nearest_name("xy", kKeys), std::nullopt);  // two edits would replace every letter of "lr"
  EXPECT_EQ(nearest_name("steps", {}), std::nullopt);
}

// Comparing each of its characters with each of the candidates' would take minutes.
TEST(NearestName, AFileInPlaceOfANameIsFarFromAll) {
  EXPECT_EQ(nearest_name(std::string(100'000'000, 'x'), kKeys), std::nullopt);
}

TEST(NearestName, LimitGrowsWithTheLength) {
  const std::vector<std::string> long_name = {"abcdefghijklmnopqr"};
  EXPECT_EQ(nearest_name("abcdefghijkl______", long_name), "abcdefghijklmnopqr");  // 6 edits of 18 letters
  EXPECT_EQ(nearest_name("abcdefghijk_______", long_name), std::nullopt);          // 7
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,b", ','), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(split(",a,,", ','), (std::vector<std::string>{"", "a", "", ""}));
  EXPECT_EQ(split("", ','), (std::vector<std::string>{""}));
}

TEST(Text, JoinIsTheInverseOfSplit) {
  const std::vector<std::string> parts = {"", "a", "", "b c"};
  EXPECT_EQ(split(join(parts, ","), ','), parts);
  EXPECT_EQ(join({}, ", "), "");
}

TEST(Text, Trim) {
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Text, Thousands) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(1000), "1,000");
  EXPECT_EQ(with_thousands(-1234567), "-1,234,567");
  EXPECT_EQ(with_thousands(-100), "-100");
  EXPECT_EQ(with_thousands(std::numeric_limits<std::int64_t>::max()), "9,223,372,036,854,775,807");
  EXPECT_EQ(with_thousands(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Text, Counted) {
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(12345, "file"), "12,345 files");
}

TEST(Text, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(3.0 * 1024 * 1024 * 1024), "3.00 GiB");
}

TEST(Text, Duration) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(65), "1:05");
  EXPECT_EQ(format_duration(3725), "1:02:05");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(-3), "0:00");
}

}  // namespace
}  // namespace titan
