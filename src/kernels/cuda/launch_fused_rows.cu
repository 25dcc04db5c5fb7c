#include "kernels/cuda/launch_fused_rows.h"
#include "kernels/cuda/launch_kernel.h"

namespace titan::cuda {
// The namespace has a name because nvcc names an anonymous one after the file's path, and the same source must give
// the same bytes in every folder.
inline namespace fused_row_kernels {

using device::BFloat16Bits;
using device::kLanes;

constexpr int kWarp = 32, kWarps = kLanes / kWarp;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;
// Enough blocks to fill any device; a grid-stride loop covers the rest.
constexpr std::int64_t kMaxBlocks = 4096;
// Shared memory that a block may use without cudaFuncSetAttribute.
constexpr std::size_t kSharedBytes = std::size_t{48} << 10;

// The lanes of a team that needs no sums: the threads of a block.
class BlockLanes {
 public:
  template <typename Body>
  __device__ void each(const Body& body) const {
    body(static_cast<int>(threadIdx.x));
  }

  __device__ void wait() const { __syncthreads(); }
};

// A team whose lanes are the threads of a block. `of_warps` [kWarps] is shared memory.
class BlockTeam : public BlockLanes {
 public:
  __device__ explicit BlockTeam(float* of_warps) : of_warps_(of_warps) {}

  template <typename Body>
  __device__ float sum(const Body& body) const {
    const int lane = static_cast<int>(threadIdx.x);
    const float of_warp = folded<kWarp>(body(lane));
    __syncthreads();  // the previous sum has been read
    if (lane % kWarp == 0) of_warps_[lane / kWarp] = of_warp;
    __syncthreads();
    return folded<kWarps>(of_warps_[lane % kWarps]);
  }

 private:
  template <int kCount>
  static __device__ float folded(float value) {
    for (int apart = kCount / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
    return value;
  }

  float* of_warps_;
};

// On an A100 the compiler gives the float32 kernel 40 registers, and spills. With 1,024 threads it may have 64. 0
// leaves the choice to the compiler, as for the other types, whose speed was measured so.
template <typename T>
constexpr int kBlocksAtLeast = sizeof(T) == sizeof(float) ? 1024 / kLanes : 0;

template <typename T>
__global__ void __launch_bounds__(kLanes, kBlocksAtLeast<T>)
    titan_rms_norm(std::int64_t rows, std::int64_t dim, float eps, const T* x, const T* delta, const T* weight, T* sum,
                   T* out, float* rrms) {
  __shared__ float of_warps[kWarps];
  const BlockTeam team(of_warps);
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t at = row * dim;
    device::rms_norm_row<T>(team, dim, eps, x + at, delta ? delta + at : nullptr, weight, sum ? sum + at : nullptr,
                            out + at, rrms + row);
  }
}

template <typename T>
__global__ void __launch_bounds__(kLanes)
    titan_rms_norm_backward(std::int64_t rows, std::int64_t dim, const T* out_grad, const T* more, const T* x,
                            const T* weight, const float* rrms, T* x_grad, float* columns) {
  __shared__ float of_warps[kWarps];
  extern __shared__ float own_columns[];  // [dim]; each lane has slots of its own, so that none waits
  const BlockTeam team(of_warps);
  const auto each_own = [&](auto body) {
    team.each([&](int lane) {
      device::for_packs_of<T>(lane, dim, [&](std::int64_t i) {
        for (int v = 0; v < device::Pack<T>::kSize; ++v) body(device::slot_of<T>(i, v, dim));
      });
    });
  };
  each_own([&](std::int64_t slot) { own_columns[slot] = 0; });
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t at = row * dim;
    device::rms_norm_backward_row<T>(team, dim, out_grad + at, more ? more + at : nullptr, x + at, weight, rrms[row],
                                     x_grad + at, own_columns);
  }
  each_own([&](std::int64_t slot) { columns[blockIdx.x * dim + slot] = own_columns[slot]; });
}

// With 64 registers, a thread loads 7 teams at once, then 9. Left to itself, the compiler takes 32 or 40, for 1 to 4.
template <typename T>
__global__ void __launch_bounds__(kLanes, 1024 / kLanes)
    titan_sum_teams(const float* columns, std::int64_t teams, std::int64_t dim, T* weight_grad) {
  __shared__ device::Pack<float> strips[kLanes];
  device::sum_teams<T>(BlockLanes(), columns, teams, dim, blockIdx.x, strips, weight_grad);
}

template <typename T>
__global__ void __launch_bounds__(kLanes) titan_rotate(device::Rotation shape, device::Places places, const T* x,
                                                       const float* factors, bool conjugate, T* out) {
  for (std::uint32_t i = blockIdx.x * kLanes + threadIdx.x; i < places.count; i += gridDim.x * kLanes)
    device::rotate_pack<T>(shape, places, i, x, factors, conjugate, out);
}

template <typename T>
__global__ void __launch_bounds__(kLanes) titan_rotate_halves(device::Rotation shape, device::Places places, const T* x,
                                                              const float* factors, bool conjugate, T* out) {
  for (std::uint32_t i = blockIdx.x * kLanes + threadIdx.x; i < places.count; i += gridDim.x * kLanes)
    device::rotate_halves_pack<T>(shape, places, i, x, factors, conjugate, out);
}

template <typename T>
__global__ void __launch_bounds__(kLanes) titan_swiglu(std::int64_t packs, const T* gate, const T* up, T* out) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kLanes;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kLanes + threadIdx.x; i < packs; i += stride)
    device::swiglu_pack<T>(i, gate, up, out);
}

template <typename T>
__global__ void __launch_bounds__(kLanes)
    titan_swiglu_backward(std::int64_t packs, const T* out_grad, const T* gate, const T* up, T* gate_grad, T* up_grad) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kLanes;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kLanes + threadIdx.x; i < packs; i += stride)
    device::swiglu_backward_pack<T>(i, out_grad, gate, up, gate_grad, up_grad);
}

// Returns the grid in which each lane computes one of `count` packs, or several.
Grid grid_of(std::int64_t count) {
  const std::int64_t blocks = (count + kLanes - 1) / kLanes;
  return {blocks < kMaxBlocks ? blocks : kMaxBlocks, kLanes};
}

}  // namespace fused_row_kernels

template <typename T>
cudaError_t launch_rms_norm(std::int64_t rows, std::int64_t dim, float eps, const T* x, const T* delta, const T* weight,
                            T* sum, T* out, float* rrms, cudaStream_t stream) {
  const std::int64_t blocks = rows < (std::int64_t{1} << 20) ? rows : (std::int64_t{1} << 20);
  return launch_kernel({blocks, kLanes}, stream, titan_rms_norm<T>, rows, dim, eps, x, delta, weight, sum, out, rrms);
}

template <typename T>
cudaError_t launch_rms_norm_backward(std::int64_t rows, std::int64_t dim, std::int64_t teams, const T* out_grad,
                                     const T* more, const T* x, const T* weight, const float* rrms, T* x_grad,
                                     T* weight_grad, float* columns, cudaStream_t stream) {
  const std::size_t shared = static_cast<std::size_t>(dim) * sizeof(float);
  if (shared + kWarps * sizeof(float) > kSharedBytes) {
    const auto error = cudaFuncSetAttribute(titan_rms_norm_backward<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(shared));
    if (error != cudaSuccess) return error;
  }
  const auto error = launch_kernel({teams, kLanes, shared}, stream, titan_rms_norm_backward<T>, rows, dim, out_grad,
                                   more, x, weight, rrms, x_grad, columns);
  if (error != cudaSuccess) return error;
  return launch_kernel({device::blocks_of_slots(dim), kLanes}, stream, titan_sum_teams<T>, columns, teams, dim,
                       weight_grad);
}

template <typename T>
cudaError_t launch_rotate(const device::Rotation& shape, const T* x, const float* factors, bool conjugate, T* out,
                          cudaStream_t stream) {
  const device::Places places = device::places_of_all<T>(shape);
  return launch_kernel(grid_of(places.count), stream, titan_rotate<T>, shape, places, x, factors, conjugate, out);
}

template <typename T>
cudaError_t launch_rotate_halves(const device::Rotation& shape, const T* x, const float* factors, bool conjugate,
                                 T* out, cudaStream_t stream) {
  const device::Places places = device::places_of_halves<T>(shape);
  return launch_kernel(grid_of(places.count), stream, titan_rotate_halves<T>, shape, places, x, factors, conjugate,
                       out);
}

template <typename T>
cudaError_t launch_swiglu(std::int64_t count, const T* gate, const T* up, T* out, cudaStream_t stream) {
  const std::int64_t packs = count / device::Pack<T>::kSize;
  return launch_kernel(grid_of(packs), stream, titan_swiglu<T>, packs, gate, up, out);
}

template <typename T>
cudaError_t launch_swiglu_backward(std::int64_t count, const T* out_grad, const T* gate, const T* up, T* gate_grad,
                                   T* up_grad, cudaStream_t stream) {
  const std::int64_t packs = count / device::Pack<T>::kSize;
  return launch_kernel(grid_of(packs), stream, titan_swiglu_backward<T>, packs, out_grad, gate, up, gate_grad, up_grad);
}

#define TITAN_INSTANTIATE(T)                                                                                        \
  template cudaError_t launch_rms_norm<T>(std::int64_t, std::int64_t, float, const T*, const T*, const T*, T*, T*,  \
                                          float*, cudaStream_t);                                                    \
  template cudaError_t launch_rms_norm_backward<T>(std::int64_t, std::int64_t, std::int64_t, const T*, const T*,    \
                                                   const T*, const T*, const float*, T*, T*, float*, cudaStream_t); \
  template cudaError_t launch_rotate<T>(const device::Rotation&, const T*, const float*, bool, T*, cudaStream_t);   \
  template cudaError_t launch_rotate_halves<T>(const device::Rotation&, const T*, const float*, bool, T*,           \
                                               cudaStream_t);                                                       \
  template cudaError_t launch_swiglu<T>(std::int64_t, const T*, const T*, T*, cudaStream_t);                        \
  template cudaError_t launch_swiglu_backward<T>(std::int64_t, const T*, const T*, const T*, T*, T*, cudaStream_t)
TITAN_INSTANTIATE(float);
TITAN_INSTANTIATE(BFloat16Bits);
#undef TITAN_INSTANTIATE

}  // namespace titan::cuda
