// Tests what a build says of a driver or device that it cannot use, and which rank a device error is blamed on.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <utility>

#include "distributed/accelerator/cuda_driver.h"
#include "distributed/accelerator/device_error.h"

namespace titan::dist {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr CudaDriver kDriver{.is_there = true, .starts = true, .num_devices = 8, .version = 13000};

TEST(CudaDriver, RunsEveryCudaOfItsMajorVersion) {
  EXPECT_EQ(why_unusable(kDriver, 13000), "");
  EXPECT_EQ(why_unusable(kDriver, 13020), "");
  EXPECT_EQ(why_unusable(kDriver, 12080), "");
}

// CUDA's runtime then finds no device, and would give "0 devices" as the reason.
TEST(CudaDriver, IsNamedWithBothVersionsWhereItIsTooOld) {
  auto old = kDriver;
  old.version = 12040;
  EXPECT_THAT(why_unusable(old, 13000), AllOf(HasSubstr("too old: it runs CUDA 12.4"), HasSubstr("needs CUDA 13.0"),
                                              HasSubstr("driver 580 or later")));
}

// Fails on a slice of a GPU that a virtual machine got: each allocation of an expandable segment would.
TEST(CudaDriver, HasVirtualMemoryIfEachDeviceHas) {
  ASSERT_TRUE(dlopen(TITAN_STUB_DRIVER, RTLD_NOW)) << dlerror();  // the loader then knows the driver's name
  setenv("STUB_CUDA_VERSION", "13000", 1);
  setenv("STUB_CUDA_DEVICES", "2", 1);
  for (const auto& [num_devices, has] : {std::pair("0", false), {"1", false}, {"2", true}}) {
    setenv("STUB_CUDA_VIRTUAL", num_devices, 1);
    const auto found = ask_cuda_driver();
    EXPECT_EQ(found.num_devices, 2);
    EXPECT_EQ(found.version, 13000);
    EXPECT_EQ(found.has_virtual_memory, has) << num_devices << " of 2 devices";
  }
}

TEST(CudaDriver, SaysWhatIsMissing) {
  EXPECT_THAT(why_unusable({}, 13000), HasSubstr("no CUDA driver"));
  EXPECT_THAT(why_unusable({.is_there = true}, 13000), HasSubstr("does not start"));
  EXPECT_THAT(why_unusable({.is_there = true, .starts = true, .version = 13000}, 13000), HasSubstr("finds no device"));
}

// Only the log of the configuration said so, and a build without the module looks like any other.
TEST(CudaModule, IsMissingForTheReasonOfTheBuild) {
  EXPECT_THAT(why_no_module("/x/libtitan_cuda.so", "nvcc is of CUDA 12, the torch wheel of CUDA 13"),
              AllOf(HasSubstr("/x/libtitan_cuda.so is not there: this build has no CUDA module"),
                    HasSubstr("nvcc is of CUDA 12, the torch wheel of CUDA 13"), HasSubstr("scripts/build.sh cuda")));
  EXPECT_THAT(why_no_module("/x/libtitan_cuda.so", ""), HasSubstr("although this build has a CUDA module"));
}

TEST(CudaDriver, DevicesBelowTheLowestCapabilityHaveNoKernels) {
  EXPECT_EQ(why_no_kernels("Tesla T4", 75, 75), "");
  EXPECT_EQ(why_no_kernels("NVIDIA B200", 100, 75), "");
  EXPECT_THAT(why_no_kernels("Tesla V100", 70, 75),
              AllOf(HasSubstr("Tesla V100 has compute capability 7.0"), HasSubstr("for 7.5 and later")));
}

constexpr const char* kNcclError =
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled system error (run with "
    "NCCL_DEBUG=INFO for details), NCCL version 2.28.9\nncclSystemError: System call (e.g. socket, malloc) or external "
    "library call failed or device error. \nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA "
    "device 1b000\nException raised from create at /pytorch";

TEST(DeviceError, KeepsWhatNcclSaysLast) {
  const auto reason = reason_in(kNcclError);
  EXPECT_THAT(reason, HasSubstr("unhandled system error"));
  EXPECT_THAT(reason, HasSubstr("NCCL's last error: Duplicate GPU detected : rank 1 and rank 0"));
  EXPECT_THAT(reason, Not(HasSubstr("Exception raised")));
  EXPECT_EQ(reason_in("one line"), "one line");
  EXPECT_EQ(reason_in("the first\nLast error: on the same line\n"), "the first; NCCL's last error: on the same line");
  EXPECT_EQ(reason_in("the first\nLast error:\n\n"), "the first");
  EXPECT_EQ(
      reason_in("[PG ID 0 PG GUID  Rank 1] Process group watchdog thread terminated with exception: a timeout\nmore"),
      "a timeout");
  EXPECT_EQ(reason_in(""), "");
}

TEST(DeviceError, OfCudaIsThisRanks) {
  EXPECT_TRUE(is_device_error("CUDA error: an illegal memory access was encountered"));
  EXPECT_TRUE(is_device_error("NCCL error in: NCCLUtils.cpp:94, unhandled cuda error, NCCL version 2.28.9"));
  EXPECT_FALSE(is_device_error(kNcclError));
  EXPECT_FALSE(is_device_error("watchdog caught a timeout"));
}

// Networks are to blame for ranks that do not meet, but not for a device without memory for NCCL's buffers.
TEST(DeviceError, AsRanksConnectHasNothingToDoWithNetworks) {
  const auto of_device = advice_to_connect("NCCL error in: NCCLUtils.cpp:94, unhandled cuda error", true);
  EXPECT_THAT(of_device, AllOf(HasSubstr("This rank's own device failed"), Not(HasSubstr("_IFNAME"))));
  EXPECT_THAT(advice_to_connect(kNcclError, true), AllOf(HasSubstr("GLOO_SOCKET_IFNAME"), HasSubstr("NCCL_IB_HCA")));
  EXPECT_THAT(advice_to_connect("Connection refused", false), Not(HasSubstr("NCCL")));
}

}  // namespace
}  // namespace titan::dist
