#include "kernels/choice.h"

#include <atomic>

#include "kernels/cpu/matmul/matmul_kernel.h"

namespace titan::kernels {
namespace {

std::atomic<bool> own_kernels = true, own_kernels_on_device = false;

}  // namespace

void use_own(bool own) { own_kernels = own; }
bool uses_own() { return own_kernels; }

bool has_fast_products(c10::ScalarType dtype) {
  const bool is_half = dtype == c10::kBFloat16 || dtype == c10::kHalf;
  return !is_half || uses_own() || has_products(dtype);
}

void use_own_on_device(bool own) { own_kernels_on_device = own; }
bool uses_own_on_device() { return own_kernels_on_device; }

}  // namespace titan::kernels
