// Measures how fast a rank multiplies matrices, in each dtype that a run may compute in.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "apps/doctor/check.h"
#include "distributed/process_group.h"

namespace titan::doctor {

// Holds the rates of a linear layer's matmuls: one in forward, and two in backward for the gradients.
struct ProductRate {
  std::string dtype;         // as in training.mixed_precision_param
  double forward, backward;  // FLOP/s
};

// Returns the rates in float32, bfloat16 and float16, with the threads that this rank has. Not collective; takes a
// second, two if a dtype is slow.
std::vector<ProductRate> measure_products(c10::Device device);

// Returns the lowest rates of all ranks. Collective; the same on all ranks.
std::vector<ProductRate> slowest_products(dist::ProcessGroup& group, std::vector<ProductRate> own);

// Returns a warning if a step in `dtype`, the configured one, takes at least 1.5 times as long as in the fastest
// dtype.
Check check_products(const std::vector<ProductRate>& rates, const std::string& dtype);

}  // namespace titan::doctor
