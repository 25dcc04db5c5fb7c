#include "apps/cpu_code.h"

#include "kernels/choice.h"
#include "kernels/cpu/attention.h"
#include "kernels/mkl_path.h"

namespace titan {

void choose_cpu_code(const config::Cpu& cpu) {
  kernels::choose_mkl_path(cpu.mkl_path == "by_vendor" ? kernels::MklPath::kByVendor
                                                       : kernels::MklPath::kByInstructions);
  kernels::use_own(cpu.kernels == "own");
  if (kernels::uses_own()) kernels::install_attention();
}

}  // namespace titan
