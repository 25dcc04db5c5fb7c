#include "train/slow_products.h"

#include "distributed/config_dtype.h"
#include "kernels/cpu/matmul/matmul_kernel.h"
#include "kernels/operators.h"

namespace titan::train {

bool has_fast_products(at::ScalarType dtype) {
  const bool is_half = dtype == at::kBFloat16 || dtype == at::kHalf;
  return !is_half || kernels::uses_fused_kernels(c10::DeviceType::CPU) || kernels::has_products(dtype);
}

std::string slow_products_warning(const config::JobConfig& config, c10::DeviceType device_type) {
  const std::string& dtype = config.training.mixed_precision_param;
  if (device_type != c10::DeviceType::CPU || has_fast_products(dist::dtype_of(dtype))) return "";
  return "this processor has no instructions for products in " + dtype +
         ", and with cpu.kernels = \"aten\" PyTorch computes them many times slower than in float32: set cpu.kernels = "
         "\"own\", or training.mixed_precision_param = \"float32\"";
}

}  // namespace titan::train
