// Implements the Launches of kernels/device/device_fused_ops.h on the current stream of the current CUDA device.
#pragma once

#include "kernels/device/device_fused_ops.h"

namespace titan::cuda {

device::Launches fused_launches();

}  // namespace titan::cuda
