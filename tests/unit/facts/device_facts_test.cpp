#include "facts/device_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace titan {
namespace {

double gib(const char* name) {
  const auto facts = find_device_facts(name);
  return facts ? static_cast<double>(facts->memory_bytes) / 0x1p30 : 0;
}

// The expected values are what PyTorch prints as a GPU's total capacity.
TEST(DeviceFacts, MemoryIsWhatDriversReport) {
  EXPECT_NEAR(gib("NVIDIA H100 80GB HBM3"), 79.1, 0.3);
  EXPECT_NEAR(gib("H100 NVL"), 93.1, 0.1);
  EXPECT_NEAR(gib("H100 96 GB"), 95.0, 0.1);
  EXPECT_NEAR(gib("NVIDIA A100-SXM4-80GB"), 79.2, 0.3);
  EXPECT_NEAR(gib("NVIDIA A100-PCIE-40GB"), 39.4, 0.2);
  EXPECT_NEAR(gib("Tesla V100-SXM2-16GB"), 15.7, 0.1);
  EXPECT_NEAR(gib("Tesla V100-PCIE-32GB"), 31.7, 0.1);
  EXPECT_NEAR(gib("b200"), 178.35, 0.1);
}

TEST(DeviceFacts, PeaksAreTheVendors) {
  const auto peak = [](const char* name) { return device_peak_flops(name, "bfloat16"); };
  EXPECT_EQ(peak("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(peak("NVIDIA H100 NVL"), 835e12);
  EXPECT_EQ(peak("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(peak("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(peak("NVIDIA H200"), 989e12);
  EXPECT_EQ(peak("NVIDIA H20"), 148e12);
  EXPECT_EQ(peak("NVIDIA B200"), 2.25e15);
  EXPECT_EQ(peak("AMD Instinct MI300X"), 1.3e15);
  EXPECT_EQ(peak("AMD Instinct MI325X"), 1.3e15);
  EXPECT_EQ(peak("AMD Instinct MI250X"), 191.5e12);
  EXPECT_EQ(peak("AMD Instinct MI355X"), 2.5e15);
  EXPECT_EQ(peak("NVIDIA L40S"), 362e12);
  EXPECT_EQ(peak("NVIDIA L4"), 121e12);
  EXPECT_EQ(device_peak_flops("NVIDIA H200", "float16"), 989e12);
}

// A device name that gives the memory gives the peak as well.
TEST(DeviceFacts, LettersMayFollowAModelAndDigitsMayNot) {
  EXPECT_EQ(device_peak_flops("H100SXM", "bfloat16"), 989e12);
  EXPECT_NEAR(gib("H100SXM"), 79.1, 0.3);
  EXPECT_EQ(find_device_facts("NVIDIA RTX A1000 Laptop GPU"), std::nullopt);  // contains "A100"
  EXPECT_EQ(find_device_facts("H1000"), std::nullopt);
  EXPECT_EQ(find_device_facts("A1000 and A100")->model, "A100");
  EXPECT_EQ(find_device_facts("NVIDIA A10G")->model, "A10G");
  EXPECT_EQ(find_device_facts("NVIDIA L40S")->model, "L40S");
}

// The names of these modules contain the names of other models, with more memory or a lower peak.
TEST(DeviceFacts, WithAProcessorOnTheModuleIsAnotherDevice) {
  EXPECT_EQ(find_device_facts("NVIDIA GH200 480GB")->model, "GH200");
  EXPECT_NEAR(gib("NVIDIA GH200 480GB"), 94.5, 0.1);
  EXPECT_EQ(gib("NVIDIA GH200 144G HBM3e"), 0);
  EXPECT_EQ(device_peak_flops("NVIDIA GH200 480GB", "bfloat16"), 989e12);
  EXPECT_NEAR(gib("NVIDIA GB200"), 184.3, 0.1);
  EXPECT_EQ(device_peak_flops("NVIDIA GB200", "bfloat16"), 2.5e15);
}

// A slice has an unknown part of the device: against the whole device's peak its utilization would be too low.
TEST(DeviceFacts, OfASliceAreNotThoseOfTheDevice) {
  for (const char* name : {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"}) {
    EXPECT_EQ(device_peak_flops(name, "bfloat16"), std::nullopt) << name;
    EXPECT_EQ(gib(name), 0) << name;
    EXPECT_TRUE(find_device_facts(name)->has_bfloat16) << name;
  }
}

TEST(DeviceFacts, OldDevicesComputeInFloat16Alone) {
  for (const char* name : {"Tesla T4", "Tesla V100-SXM2-32GB", "Tesla P100-PCIE-16GB", "Tesla P40", "AMD MI50"})
    EXPECT_FALSE(find_device_facts(name)->has_bfloat16) << name;
  EXPECT_EQ(device_peak_flops("Tesla V100-SXM2-32GB", "float16"), 125e12);
  EXPECT_EQ(device_peak_flops("Tesla V100-PCIE-16GB", "float16"), 112e12);
  EXPECT_EQ(device_peak_flops("Tesla V100S-PCIE-32GB", "float16"), 130e12);
  EXPECT_EQ(device_peak_flops("Tesla T4", "float16"), 65e12);
  EXPECT_EQ(device_peak_flops("Tesla T4", "bfloat16"), std::nullopt);
}

TEST(DeviceFacts, NoPeakForWhatIsNotKnown) {
  EXPECT_EQ(device_peak_flops("NVIDIA GeForce RTX 4090", "bfloat16"), std::nullopt);
  EXPECT_EQ(device_peak_flops("Tesla P100-PCIE-16GB", "float16"), std::nullopt);
  EXPECT_EQ(device_peak_flops("", "bfloat16"), std::nullopt);
  EXPECT_EQ(device_peak_flops("NVIDIA H100 80GB HBM3", "float32"), std::nullopt);
}

TEST(DeviceFacts, ListsEveryModelWithMemoryOnce) {
  EXPECT_THAT(models_with_known_memory(),
              testing::ElementsAre("GB200", "B200", "GH200", "H200", "H100", "H20", "A100", "A10G", "A10", "L40S", "L4",
                                   "T4", "V100", "4090", "5090", "MI250X", "MI300X", "MI325X", "MI355X"));
}

}  // namespace
}  // namespace titan
