#include "library/code_choice.h"

#include <ATen/Context.h>

#include "kernels/cpu/attention/attention_kernel.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul/matmul_kernel.h"
#include "kernels/mkl_path.h"
#include "kernels/operators.h"

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
  const bool is_own = cpu.kernels == "own";
  kernels::use_fused_kernels(c10::DeviceType::CPU, is_own);
  kernels::use_fused_kernels(c10::DeviceType::Meta, is_own);
  if (!is_own) return;
  kernels::install_attention();
  kernels::install_matmul();
}

void choose_cuda_code(const config::Cuda& cuda, c10::DeviceType type) {
  kernels::use_fused_kernels(type, cuda.kernels == "own");
  if (cuda.attention == "auto") return;  // PyTorch chooses
  auto& context = at::globalContext();
  context.setSDPUseCuDNN(cuda.attention == "cudnn");
  context.setSDPUseFlash(cuda.attention == "flash");
  context.setSDPUseMemEfficient(cuda.attention == "efficient");
  context.setSDPUseMath(cuda.attention == "math");
}

}  // namespace titan
