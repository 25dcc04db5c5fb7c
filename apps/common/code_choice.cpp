#include "apps/common/code_choice.h"

#include <ATen/Context.h>

#include "kernels/choice.h"
#include "kernels/cpu/attention/attention_kernel.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul/matmul_kernel.h"
#include "kernels/mkl_path.h"

namespace titan {
namespace {

kernels::Isa instructions_of(const std::string& name) {
  if (name == "avx2") return kernels::Isa::kAvx2;
  if (name == "avx512") return kernels::Isa::kAvx512;
  return name == "avx512_bf16" ? kernels::Isa::kAvx512Bfloat16 : kernels::Isa::kAll;
}

}  // namespace

void choose_cpu_code(const config::Cpu& cpu) {
  kernels::limit_instructions(instructions_of(cpu.instructions));
  kernels::choose_mkl_path(cpu.mkl_path == "by_vendor" ? kernels::MklPath::kByVendor
                                                       : kernels::MklPath::kByInstructions);
  kernels::use_own(cpu.kernels == "own");
  if (!kernels::uses_own()) return;
  kernels::install_attention();
  kernels::install_matmul();
}

void choose_cuda_code(const config::Cuda& cuda) {
  kernels::use_own_on_device(cuda.kernels == "own");
  if (cuda.attention == "auto") return;  // PyTorch chooses
  auto& context = at::globalContext();
  context.setSDPUseCuDNN(cuda.attention == "cudnn");
  context.setSDPUseFlash(cuda.attention == "flash");
  context.setSDPUseMemEfficient(cuda.attention == "efficient");
  context.setSDPUseMath(cuda.attention == "math");
}

}  // namespace titan
