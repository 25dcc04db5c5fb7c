#include "cuda/fused_launches.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "kernels/cuda/launch_fused_rows.h"

namespace titan::cuda {
namespace {

template <auto launch>
constexpr auto on_current_stream =
    [](auto... arguments) { C10_CUDA_CHECK(launch(arguments..., c10::cuda::getCurrentCUDAStream())); };

template <typename T>
device::LaunchesFor<T> launches_for() {
  return {.rms_norm = on_current_stream<launch_rms_norm<T>>,
          .rms_norm_backward = on_current_stream<launch_rms_norm_backward<T>>,
          .rotate = on_current_stream<launch_rotate<T>>,
          .rotate_halves = on_current_stream<launch_rotate_halves<T>>,
          .swiglu = on_current_stream<launch_swiglu<T>>,
          .swiglu_backward = on_current_stream<launch_swiglu_backward<T>>};
}

}  // namespace

device::Launches fused_launches() { return {launches_for<float>(), launches_for<device::BFloat16Bits>()}; }

}  // namespace titan::cuda
