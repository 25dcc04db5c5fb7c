#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "apps/engine.h"
#include "apps/installed_torch.h"
#include "base/error.h"
#include "base/installation.h"

namespace titan {
namespace {

using RunEngine = decltype(&titan_run_engine);

RunEngine load() {
  const auto library = library_of_program("libtitan_engine.so");
  std::error_code error;
  if (!std::filesystem::exists(library, error))
    throw Error("there is no " + library.string() + ", and no package titan_train beside " + program_file().string() +
                    ". A program that is copied alone has lost its engine: install it again, or make a link to it",
                kExitFailed);
  // RTLD_GLOBAL: the CUDA module uses the engine's symbols, and MKL must find the engine's mkl_serv_intel_cpu_true()
  // before its own (kernels/mkl_path.h).
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  if (!handle) throw Error(std::string("the program's engine cannot be loaded: ") + dlerror(), kExitFailed);
  const auto build = reinterpret_cast<decltype(&titan_engine_build)>(dlsym(handle, "titan_engine_build"));
  const std::string found = build ? build() : "unknown";
  if (found != TITAN_BUILD)
    throw Error(library.string() + " is of the build " + found + ", and " + program_file().string() +
                    " of " TITAN_BUILD
                    ". Uninstall titan-train from each Python of this environment, then install it once",
                kExitFailed);
  return reinterpret_cast<RunEngine>(dlsym(handle, "titan_run_engine"));
}

}  // namespace

int run_engine(std::vector<std::string> args) {
  args.insert(args.begin(), "titan-train");
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  if (use_installed_torch()) {  // the loader reads its variables when a process starts
    execv("/proc/self/exe", argv.data());
    throw Error(std::string("the program cannot start itself anew: ") + std::strerror(errno), kExitFailed);
  }
  return load()(static_cast<int>(argv.size()) - 1, argv.data());
}

}  // namespace titan
