#include "train/dry_run/named_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace titan::train {
namespace {

double gib(const std::string& text) { return static_cast<double>(named_device(text).bytes) / 0x1p30; }

// The expected values are what PyTorch prints as a GPU's total capacity.
TEST(NamedDevice, HasTheMemoryThatDriversReport) {
  EXPECT_NEAR(gib("H100"), 79.1, 0.3);
  EXPECT_NEAR(gib("NVIDIA A100-SXM4-80GB"), 79.2, 0.3);
  EXPECT_NEAR(gib("NVIDIA A100-PCIE-40GB"), 39.4, 0.2);
  EXPECT_NEAR(gib("h200"), 139.8, 0.2);
  EXPECT_NEAR(gib("H100 NVL"), 93.1, 0.1);
  EXPECT_NEAR(gib("H100 96GB"), 95.0, 0.1);
  EXPECT_NEAR(gib("B200"), 178.35, 0.1);
  EXPECT_NEAR(gib("rtx 4090"), 23.5, 0.2);
  EXPECT_NEAR(gib("Tesla T4"), 14.6, 0.1);
  EXPECT_NEAR(gib("MI300X"), 191.7, 0.3);
}

TEST(NamedDevice, TakesAnAmountAsItStands) {
  EXPECT_EQ(gib("80GiB"), 80);
  EXPECT_EQ(named_device("80 GB").bytes, 80'000'000'000);
}

TEST(NamedDevice, DoesNotGuess) {
  for (const char* text : {"H1000", "A1000", "24", "24G", "-1GiB", ""})
    EXPECT_THROW(named_device(text), ConfigError) << text;
}

}  // namespace
}  // namespace titan::train
