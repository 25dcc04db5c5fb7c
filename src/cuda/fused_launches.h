// The calls of kernels/device/device_fused_ops.h as launches on the current stream of the current CUDA device.
#pragma once

#include "kernels/device/device_fused_ops.h"

namespace titan::cuda {

device::Launches fused_launches();

}  // namespace titan::cuda
