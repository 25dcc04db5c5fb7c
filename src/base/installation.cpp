#include "base/installation.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <system_error>
#include <vector>

namespace titan {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPackage = "titan_train";  // what scripts/make_wheel.py calls it

// Lists the folders that pip may have installed packages to, given the one above its programs: of a virtual environment
// or a prefix, of Debian's Python, and of pip install --target.
std::vector<fs::path> package_folders(const fs::path& prefix) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const char* lib : {"lib", "lib64"}) {
    for (const auto& python : fs::directory_iterator(prefix / lib, error)) {
      if (!python.path().filename().native().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) out.push_back(python.path() / packages);
    }
  }
  out.push_back(prefix);
  std::ranges::sort(out);
  return out;
}

// Prefers an environment that has torch, for the case that pip of two Python versions installed to one prefix.
fs::path found_by_pip(const fs::path& prefix) {
  fs::path found;
  std::error_code error;
  for (const fs::path& packages : package_folders(prefix)) {
    if (!fs::exists(packages / kPackage / "lib", error)) continue;
    if (found.empty() || fs::exists(packages / "torch", error)) found = packages / kPackage;
  }
  return found;
}

// Returns the library that this code was linked into; empty if that is the program itself.
fs::path library_of_this_code() {
  Dl_info info = {};
  link_map* object = nullptr;
  const auto* here = reinterpret_cast<const void*>(&library_of_this_code);
  if (!dladdr1(here, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP)) return {};
  return object->l_name;  // the loader has no name for the program
}

}  // namespace

fs::path program_file() { return fs::read_symlink("/proc/self/exe"); }

fs::path installed_folder() {
  const fs::path prefix = program_file().parent_path().parent_path();
  std::error_code error;
  if (fs::exists(prefix / "lib/libtitan_engine.so", error)) return prefix;
  return found_by_pip(prefix);
}

fs::path library_of_program(const std::string& name) {
  if (const fs::path own = library_of_this_code(); !own.empty()) return fs::canonical(own).parent_path() / name;
  const fs::path root = installed_folder();
  return root.empty() ? program_file().parent_path() / name : root / "lib" / name;
}

}  // namespace titan
