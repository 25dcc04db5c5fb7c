// Implements the Launches of kernels/device/device_operators.h on the current stream of the current CUDA device.
#pragma once

#include "kernels/device/device_operators.h"

namespace titan::cuda {

device::Launches fused_launches();

}  // namespace titan::cuda
