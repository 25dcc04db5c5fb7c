// Loads the module without needing a device: every symbol must resolve, and the engine must see its registration.
#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include "base/error.h"
#include "distributed/device.h"

namespace titan {
namespace {

void register_module() {
  void* handle = dlopen(TITAN_CUDA_MODULE, RTLD_NOW | RTLD_GLOBAL);
  TITAN_CHECK(handle, dlerror());
  auto* entry = reinterpret_cast<void (*)()>(dlsym(handle, "titan_register_cuda"));
  TITAN_CHECK(entry, "the module does not export titan_register_cuda");
  entry();
}

TEST(CudaModule, RegistersWithTheEngineOfTheProgram) {
  ASSERT_EQ(dist::accelerator(), nullptr);
  register_module();
  const auto* module = dist::accelerator();
  ASSERT_NE(module, nullptr) << "the module has a registry of its own: it must not link titan_dist";
  EXPECT_EQ(module->type, c10::DeviceType::CUDA);
  EXPECT_TRUE(module->make_backend && module->device_count && module->set_device && module->device_name);
  EXPECT_TRUE(module->device_free_bytes && module->device_uuid && module->why_no_kernels);
  EXPECT_TRUE(module->device_capacity_bytes && module->peak_reserved_bytes && module->reset_peak_memory &&
              module->fill_uniform && module->record_memory_history && module->memory_snapshot);
  EXPECT_GE(module->device_count(), 0);
  EXPECT_THROW(module->fill_uniform(at::zeros({4}), 1, 2, 0), InternalError) << "a host tensor";
}

// Torch caches that CUDA is missing if asked before the module is loaded; training would fail much later.
TEST(CudaModuleDeathTest, RefusesToComeTooLate) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto register_late = [] {
    if (at::Context::hasCUDART()) _exit(kExitDone);
    try {
      register_module();
    } catch (const InternalError& error) {
      std::fputs(error.what(), stderr);
      _exit(kExitFailed);
    }
    _exit(kExitDone);
  };
  EXPECT_EXIT(register_late(), testing::ExitedWithCode(kExitFailed), "before the CUDA module was loaded");
}

TEST(CudaModuleDeathTest, AFailureOfNcclEndsTheProcessAsAPeersFailure) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail_in_a_thread = [](auto thrower) {
    register_module();
    std::thread(thrower).join();
  };
  EXPECT_EXIT(fail_in_a_thread([] { TORCH_CHECK_WITH(DistBackendError, false, "watchdog caught a timeout"); }),
              testing::ExitedWithCode(kExitPeerFailed),
              "NCCL: a peer rank ended or did not answer in time: .*watchdog caught a timeout");
  EXPECT_EXIT(fail_in_a_thread([] {
                TORCH_CHECK_WITH(DistBackendError, false, "NCCL error: unhandled system error\nLast error:\nno route");
              }),
              testing::ExitedWithCode(kExitPeerFailed), "unhandled system error; NCCL's last error: no route");
  EXPECT_EXIT(fail_in_a_thread([] { throw std::runtime_error("another error"); }), testing::KilledBySignal(SIGABRT),
              "another error");
}

// NCCL's watchdog reports every device error as its own. A launcher restarts the job on exit code 3, so a kernel that
// always faults would be restarted forever.
TEST(CudaModuleDeathTest, AnErrorOfTheDeviceIsThisRanksAlsoFromNcclsThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail_in_a_thread = [] {
    register_module();
    std::thread([] {
      TORCH_CHECK_WITH(
          DistBackendError, false,
          "[PG ID 0] Process group watchdog thread terminated with exception: CUDA error: an illegal memory "
          "access was encountered");
    }).join();
  };
  EXPECT_EXIT(fail_in_a_thread(), testing::ExitedWithCode(kExitFailed),
              "the device failed: .*an illegal memory access");
}

// Frees page-locked memory as torch does: it records an event, which fails after a device error.
struct FreesPinnedMemory {
  ~FreesPinnedMemory() { throw_device_error(); }
  [[noreturn]] static void throw_device_error() {
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 700, "CUDA error: an illegal memory access");
  }
};

TEST(CudaModuleDeathTest, AnErrorOfTheDeviceIsToldAlsoWhereTensorsMeetItAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [] {
    register_module();
    try {
      const FreesPinnedMemory tensor;
      FreesPinnedMemory::throw_device_error();
    } catch (const std::exception&) {
      _exit(kExitDone);
    }
  };
  EXPECT_EXIT(fail(), testing::ExitedWithCode(kExitFailed), "the device failed: CUDA error: an illegal memory access");
}

}  // namespace
}  // namespace titan
