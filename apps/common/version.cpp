#include "apps/common/version.h"

#include <ATen/Version.h>
#include <torch/version.h>

#include "kernels/mkl_path.h"

namespace titan {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "Clang " __clang_version__;
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

}  // namespace

const char* build_name() { return TITAN_VERSION " " TITAN_REVISION; }

std::string version_text() {
  return std::string("titan-train " TITAN_VERSION " (" TITAN_REVISION ")\n") + "compiler: " + kCompiler + ", C++" +
         std::to_string(__cplusplus / 100 % 100) + "\n" + "torch:    " TITAN_TORCH_VERSION "\n" +
         "CUDA:     " TITAN_CUDA_VERSION "\n" + "NCCL:     " TITAN_NCCL_VERSION "\n" +
         "CPU:      " + at::get_cpu_capability() + (kernels::mkl_takes_fast_code() ? ", MKL's fast code" : "") + "\n";
}

}  // namespace titan
