#include "apps/train/pick_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace titan {
namespace {

using testing::HasSubstr;

// CUDA parses the variable in the same way.
TEST(PickDevice, VisibleDevicesEndAtTheFirstInvalidEntry) {
  EXPECT_EQ(num_visible_devices("0"), 1);
  EXPECT_EQ(num_visible_devices("0,1,3"), 3);
  EXPECT_EQ(num_visible_devices("GPU-1f,GPU-2e"), 2);
  EXPECT_EQ(num_visible_devices(""), 0);
  EXPECT_EQ(num_visible_devices("-1"), 0);
  EXPECT_EQ(num_visible_devices("0,-1,2"), 1);
  EXPECT_EQ(num_visible_devices("0,,2"), 1);
  EXPECT_EQ(num_visible_devices("1,0,1"), 0);
  EXPECT_EQ(num_visible_devices("1,0,-1,1"), 2);
}

TEST(PickDevice, EachRankOfAMachineTakesADevice) {
  unsetenv("TITAN_DEVICE_COMM");
  LaunchEnv launch;
  launch.world_size = 8;
  launch.local_world_size = 4;
  EXPECT_NO_THROW(check_num_devices(4, "this machine", launch));
  EXPECT_THAT(test::message_of<ConfigError>([&] { check_num_devices(3, "CUDA_VISIBLE_DEVICES=0,1,2", launch); }),
              HasSubstr("error: CUDA_VISIBLE_DEVICES=0,1,2 gives 3 CUDA device(s) to the 4 ranks of this machine"));
  EXPECT_NO_THROW(check_num_devices(1, "this machine", launch)) << "a launcher may show each rank its own alone";
  setenv("TITAN_DEVICE_COMM", "gloo", 1);  // lets ranks share a device
  EXPECT_NO_THROW(check_num_devices(2, "this machine", launch));
  unsetenv("TITAN_DEVICE_COMM");
}

TEST(PickDevice, TheCpuNeedsNoModule) {
  config::JobConfig config;
  config.training.device = "cpu";
  EXPECT_EQ(pick_device_type(config, {}), c10::DeviceType::CPU);
  const train::Device half = device_of_a_rank(config, 2), whole = device_of_a_rank(config, 1);
  EXPECT_FALSE(half.is_gpu);
  EXPECT_EQ(half.bytes, whole.bytes / 2);
  EXPECT_EQ(half.name, "this machine's memory, 2 rank(s) on it");
}

}  // namespace
}  // namespace titan
