#include <dlfcn.h>

#include "apps/engine.h"
#include "base/error.h"
#include "base/fs.h"

namespace titan {

int run_engine(std::vector<std::string> args) {
  const auto library = library_of_program("libtitan_engine.so");
  // RTLD_GLOBAL: the CUDA module uses the engine's symbols, and MKL must find the engine's mkl_serv_intel_cpu_true()
  // before its own (kernels/mkl_path.h).
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  if (!handle) throw Error(std::string("the program's engine cannot be loaded: ") + dlerror(), kExitFailed);
  auto* run = reinterpret_cast<decltype(&titan_run_engine)>(dlsym(handle, "titan_run_engine"));
  if (!run) throw Error(library.string() + " is from another build: it has no titan_run_engine", kExitFailed);
  args.insert(args.begin(), "titan-train");
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  return run(static_cast<int>(args.size()), argv.data());
}

}  // namespace titan
