// The fused operators on a GPU. Pointers are memory of the current device; each call is queued on `stream` and returns
// the launch's error. T is float or BFloat16Bits; kernels/portable/fused_lanes.h says what is computed, and which
// alignment and sizes it needs. No torch here: nvcc compiles this in seconds.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/portable/fused_lanes.h"

namespace titan::cuda {

// x, delta, sum, out [rows, dim]; delta and sum are null if there is no sum. rrms [rows].
template <typename T>
cudaError_t launch_rms_norm(std::int64_t rows, std::int64_t dim, float eps, const T* x, const T* delta, const T* weight,
                            T* sum, T* out, float* rrms, cudaStream_t stream);

// `columns` [teams, dim] is workspace; `more` may be null.
template <typename T>
cudaError_t launch_rms_norm_backward(std::int64_t rows, std::int64_t dim, std::int64_t teams, const T* out_grad,
                                     const T* more, const T* x, const T* weight, const float* rrms, T* x_grad,
                                     T* weight_grad, float* columns, cudaStream_t stream);

template <typename T>
cudaError_t launch_rotate(const device::Rotation& shape, const T* x, const float* factors, bool conjugate, T* out,
                          cudaStream_t stream);

template <typename T>
cudaError_t launch_rotate_halves(const device::Rotation& shape, const T* x, const float* factors, bool conjugate,
                                 T* out, cudaStream_t stream);

template <typename T>
cudaError_t launch_swiglu(std::int64_t count, const T* gate, const T* up, T* out, cudaStream_t stream);

template <typename T>
cudaError_t launch_swiglu_backward(std::int64_t count, const T* out_grad, const T* gate, const T* up, T* gate_grad,
                                   T* up_grad, cudaStream_t stream);

}  // namespace titan::cuda
