#include "distributed/accelerator/cuda_driver.h"

#include <dlfcn.h>

namespace titan::dist {
namespace {

// cuda.h: CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED.
constexpr int kVirtualMemoryAttribute = 102;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

// Returns the first branch of NVIDIA's drivers for a major version of CUDA (CUDA Compatibility, table "CUDA Toolkit
// and minimum driver version").
std::string driver_for(int cuda_major) {
  if (cuda_major == 12) return "driver 525 or later";
  if (cuda_major == 13) return "driver 580 or later";
  return "a later driver";
}

}  // namespace

CudaDriver ask_cuda_driver() {
  CudaDriver driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) return driver;
  driver.is_there = true;
  auto* const init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  auto* const version = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  auto* const count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  auto* const attribute = reinterpret_cast<int (*)(int*, int, int)>(dlsym(library, "cuDeviceGetAttribute"));
  if (version && version(&driver.version) != 0) driver.version = 0;
  driver.starts = init && count && init(0) == 0 && count(&driver.num_devices) == 0;
  if (!driver.starts) driver.num_devices = 0;
  driver.has_virtual_memory = attribute && driver.num_devices > 0;
  for (int device = 0; driver.has_virtual_memory && device < driver.num_devices; ++device) {
    int value = 0;
    driver.has_virtual_memory = attribute(&value, kVirtualMemoryAttribute, device) == 0 && value != 0;
  }
  return driver;
}

std::string why_unusable(const CudaDriver& driver, int needed) {
  if (!driver.is_there) return "no CUDA driver (libcuda.so.1) on this machine";
  // Checked before the devices: an old driver finds them, but CUDA's runtime then reports none.
  if (driver.version > 0 && driver.version / 1000 < needed / 1000)
    return "the CUDA driver of this machine is too old: it runs CUDA " + version_text(driver.version) +
           " and earlier, and this build needs CUDA " + version_text(needed) + "; install NVIDIA's " +
           driver_for(needed / 1000) + ", or build with the torch wheel of an earlier CUDA";
  if (!driver.starts) return "the CUDA driver does not start";
  return driver.num_devices > 0 ? "" : "the CUDA driver finds no device";
}

std::string why_no_module(const std::string& path, const std::string& missing) {
  if (missing.empty()) return path + " is not there, although this build has a CUDA module: copy or install it there";
  return path + " is not there: this build has no CUDA module, since when it was configured, " + missing +
         ". Build again with scripts/build.sh cuda, which needs the toolkit of the torch wheel's CUDA";
}

std::string why_no_kernels(const std::string& device_name, int capability, int lowest) {
  if (capability >= lowest) return "";
  return device_name + " has compute capability " + capability_text(capability) + ", and this build has kernels for " +
         capability_text(lowest) +
         " and later; compile with its number in CMAKE_CUDA_ARCHITECTURES if the torch wheel " +
         "has kernels for it, or set training.device = \"cpu\"";
}

}  // namespace titan::dist
