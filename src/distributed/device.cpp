#include "distributed/device.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/fs.h"

namespace titan::dist {
namespace {

std::optional<AcceleratorModule>& slot() {
  static std::optional<AcceleratorModule> module;
  return module;
}

// The driver library answers without a CUDA runtime: cuInit fails where there is no device, in about a millisecond.
std::string why_no_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!driver) return "no CUDA driver (libcuda.so.1) on this machine";
  auto* init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  auto* count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  if (!init || !count || init(0) != 0 || count(&devices) != 0) return "the CUDA driver does not start";
  return devices > 0 ? "" : "the CUDA driver finds no device";
}

// Before CUDA starts, which reads it.
void configure_allocator() {
  if (!std::getenv("PYTORCH_CUDA_ALLOC_CONF"))
    setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
}

}  // namespace

void register_accelerator(AcceleratorModule module) { slot() = std::move(module); }

const AcceleratorModule* accelerator() { return slot() ? &*slot() : nullptr; }

std::string load_accelerator_module() {
  if (accelerator()) return "";
  if (std::string reason = why_no_driver(); !reason.empty()) return reason;
  const auto library = library_of_program("libtitan_cuda.so");
  if (!std::filesystem::exists(library)) return library.string() + " is not there: this build has no CUDA module";
  configure_allocator();
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle) return std::string("cannot load the CUDA module: ") + dlerror();
  auto* entry = reinterpret_cast<void (*)()>(dlsym(handle, "titan_register_cuda"));
  if (!entry) return library.string() + " has no titan_register_cuda: it is from another build";
  entry();
  return "";
}

}  // namespace titan::dist
