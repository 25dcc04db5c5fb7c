#include "distributed/device.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/installation.h"
#include "distributed/accelerator/cuda_driver.h"

namespace titan::dist {
namespace {

std::optional<AcceleratorModule>& slot() {
  static std::optional<AcceleratorModule> module;
  return module;
}

const CudaDriver& driver() {
  static const CudaDriver found = ask_cuda_driver();
  return found;
}

// Sets the caching allocator's options. Call before CUDA starts, which reads them.
void configure_allocator() {
  if (!std::getenv("PYTORCH_CUDA_ALLOC_CONF") && driver().has_virtual_memory)
    setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
}

// Limits how long c10d waits for its records of NCCL before it acts on a collective that failed or timed out: four
// times this, which is a minute by default, whether records are written or not. c10d reads it when NCCL first connects.
void limit_wait_for_records() { setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "500", /*overwrite=*/0); }

// Loads the CUDA libraries of the torch that this process uses, wherever it is: the module's own search path reaches
// them only if both lie in one Python environment. Without them the module does not load, and says which is missing.
void load_libraries_of_torch() {
  Dl_info info = {};
  if (!dladdr(reinterpret_cast<const void*>(&at::globalContext), &info)) return;
  dlopen((std::filesystem::path(info.dli_fname).parent_path() / "libtorch.so").c_str(), RTLD_NOW | RTLD_GLOBAL);
}

}  // namespace

void register_accelerator(AcceleratorModule module) { slot() = std::move(module); }

const AcceleratorModule* accelerator() { return slot() ? &*slot() : nullptr; }

bool has_cuda_device() { return driver().num_devices > 0; }

std::string load_accelerator_module() {
  limit_wait_for_records();
  if (accelerator()) return "";
  if (std::string reason = why_unusable(driver(), TITAN_CUDA_NEEDED); !reason.empty()) return reason;
  const auto library = library_of_program("libtitan_cuda.so");
  if (!std::filesystem::exists(library)) return why_no_module(library.string(), TITAN_CUDA_MISSING);
  configure_allocator();
  load_libraries_of_torch();
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle)
    return std::string("cannot load the CUDA module: ") + dlerror() +
           ". It needs a torch of CUDA " TITAN_CUDA_VERSION ", as pip installs it by default";
  auto* entry = reinterpret_cast<void (*)()>(dlsym(handle, "titan_register_cuda"));
  if (!entry) return library.string() + " has no titan_register_cuda: it is from another build";
  entry();
  return "";
}

}  // namespace titan::dist
