#include "kernels/device/device_operators.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>

#include "kernels/device/host_team.h"

namespace titan::device {
namespace {

// Maximum number of teams in RMSNorm's backward: enough to fill any device, few enough to sum their results quickly.
constexpr std::int64_t kMostTeams = 512;
// A team's columns must fit the shared memory of a block.
constexpr std::int64_t kMostColumns = 16384;

template <typename T>
const T* input(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <typename T>
T* output(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

// Calls body(launches of the tensor's dtype, an element of it) with the tensor's device current.
template <typename Body>
void with_dtype(const Launches& launches, const at::Tensor& tensor, const Body& body) {
  const c10::DeviceGuard guard(tensor.device());
  if (tensor.scalar_type() == at::kFloat) {
    body(launches.of_float, float{});
  } else {
    body(launches.of_bfloat16, BFloat16Bits{});
  }
}

std::int64_t pack_size(const at::Tensor& tensor) { return 16 / static_cast<std::int64_t>(tensor.element_size()); }

// True if the first element, and so the start of each pack, is aligned to 16 bytes.
bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

// Returns a contiguous, aligned tensor: a gradient may have any strides and begin anywhere in its memory.
at::Tensor packed(const at::Tensor& tensor) {
  const auto contiguous = tensor.contiguous();
  return is_aligned(contiguous) ? contiguous : contiguous.clone();
}

bool are_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty_like(tensor, tensor.options(), at::MemoryFormat::Contiguous);
}

}  // namespace

bool DeviceOperators::takes(const at::Tensor& tensor) const {
  return tensor.device().type() == type_ &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

bool DeviceOperators::takes_rms_norm(const at::Tensor& x, const at::Tensor& weight) const {
  return takes(x) && are_alike(x, weight) && x.dim() > 0 && x.numel() > 0 && weight.dim() == 1 &&
         weight.size(0) == x.size(-1) && x.size(-1) % pack_size(x) == 0 && x.size(-1) <= kMostColumns &&
         x.is_contiguous() && weight.is_contiguous() && is_aligned(x) && is_aligned(weight);
}

Tensors2 DeviceOperators::rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) const {
  if (!takes_rms_norm(x, weight)) return {};
  const std::int64_t dim = x.size(-1), rows = x.numel() / dim;
  const auto out = contiguous_like(x), rrms = at::empty({rows}, x.options().dtype(at::kFloat));
  with_dtype(launches_, x, [&](const auto& launch, auto element) {
    using T = decltype(element);
    launch.rms_norm(rows, dim, static_cast<float>(eps), input<T>(x), nullptr, input<T>(weight), nullptr, output<T>(out),
                    output<float>(rrms));
  });
  return {out, rrms};
}

Tensors3 DeviceOperators::add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                                       double eps) const {
  const bool is_taken = takes_rms_norm(x, weight) && are_alike(x, delta) && x.sizes() == delta.sizes() &&
                        delta.is_contiguous() && is_aligned(delta);
  if (!is_taken) return {};
  const std::int64_t dim = x.size(-1), rows = x.numel() / dim;
  const auto sum = contiguous_like(x), out = contiguous_like(x);
  const auto rrms = at::empty({rows}, x.options().dtype(at::kFloat));
  with_dtype(launches_, x, [&](const auto& launch, auto element) {
    using T = decltype(element);
    launch.rms_norm(rows, dim, static_cast<float>(eps), input<T>(x), input<T>(delta), input<T>(weight), output<T>(sum),
                    output<T>(out), output<float>(rrms));
  });
  return {sum, out, rrms};
}

Tensors2 DeviceOperators::rms_norm_backward(const at::Tensor& out_grad, const at::Tensor& x, const at::Tensor& weight,
                                            const at::Tensor& rrms, const std::optional<at::Tensor>& more) const {
  const std::int64_t dim = x.size(-1), rows = x.numel() / dim, teams = std::min(rows, kMostTeams);
  const auto grad = packed(out_grad), added = more && more->defined() ? packed(*more) : at::Tensor();
  const auto x_grad = contiguous_like(x), weight_grad = contiguous_like(weight);
  const auto columns = at::empty({teams, dim}, rrms.options());
  with_dtype(launches_, x, [&](const auto& launch, auto element) {
    using T = decltype(element);
    launch.rms_norm_backward(rows, dim, teams, input<T>(grad), input<T>(added), input<T>(x), input<T>(weight),
                             input<float>(rrms), output<T>(x_grad), output<T>(weight_grad), output<float>(columns));
  });
  return {x_grad, weight_grad};
}

// `packs`: a head is a multiple of that many packs.
bool DeviceOperators::takes_rotation(const at::Tensor& x, const at::Tensor& factors, std::int64_t packs) const {
  return takes(x) && x.dim() == 4 && x.numel() > 0 && x.size(3) % (packs * pack_size(x)) == 0 &&
         x.size(2) * x.size(3) / pack_size(x) <= kernels::Divisor::kMost && factors.device() == x.device() &&
         factors.scalar_type() == at::kComplexFloat && factors.dim() == 2 && factors.is_contiguous() &&
         !factors.is_conj() && factors.size(0) >= x.size(1) && factors.size(1) == x.size(3) / 2;
}

// `launch_of` returns one of the launches of a dtype.
template <typename LaunchOf>
at::Tensor DeviceOperators::rotate_by(const at::Tensor& any, const at::Tensor& factors, bool conjugate,
                                      const LaunchOf& launch_of) const {
  const auto size = pack_size(any);
  const bool fits = any.stride(3) == 1 && any.stride(2) % size == 0 && any.stride(1) % size == 0 &&
                    any.stride(0) % size == 0 && is_aligned(any);
  const auto x = fits ? any : packed(any);
  const auto out = contiguous_like(x);
  const Rotation shape{x.size(0), x.size(1), x.size(2), x.size(3), x.stride(0), x.stride(1), x.stride(2)};
  with_dtype(launches_, x, [&](const auto& launch, auto element) {
    using T = decltype(element);
    for_parts_of<T>(shape, input<T>(x), input<float>(factors), output<T>(out),
                    [&](const Rotation& part, const T* of_x, const float* by, T* of_out) {
                      launch_of(launch)(part, of_x, by, conjugate, of_out);
                    });
  });
  return out;
}

at::Tensor DeviceOperators::rotate(const at::Tensor& x, const at::Tensor& factors, bool conjugate) const {
  if (!takes_rotation(x, factors, /*packs=*/1)) return {};
  return rotate_by(
      x, factors, conjugate, [](const auto& launch) -> const auto& { return launch.rotate; });
}

at::Tensor DeviceOperators::rotate_halves(const at::Tensor& x, const at::Tensor& factors, bool conjugate) const {
  if (!takes_rotation(x, factors, /*packs=*/2)) return {};
  return rotate_by(
      x, factors, conjugate, [](const auto& launch) -> const auto& { return launch.rotate_halves; });
}

at::Tensor DeviceOperators::swiglu(const at::Tensor& gate, const at::Tensor& up) const {
  const bool is_taken = takes(gate) && are_alike(gate, up) && gate.sizes() == up.sizes() && gate.numel() > 0 &&
                        gate.numel() % pack_size(gate) == 0 && gate.is_contiguous() && up.is_contiguous() &&
                        is_aligned(gate) && is_aligned(up);
  if (!is_taken) return {};
  const auto out = contiguous_like(gate);
  with_dtype(launches_, gate, [&](const auto& launch, auto element) {
    using T = decltype(element);
    launch.swiglu(gate.numel(), input<T>(gate), input<T>(up), output<T>(out));
  });
  return out;
}

Tensors2 DeviceOperators::swiglu_backward(const at::Tensor& out_grad, const at::Tensor& gate,
                                          const at::Tensor& up) const {
  const auto grad = packed(out_grad), gate_grad = contiguous_like(gate), up_grad = contiguous_like(up);
  with_dtype(launches_, gate, [&](const auto& launch, auto element) {
    using T = decltype(element);
    launch.swiglu_backward(gate.numel(), input<T>(grad), input<T>(gate), input<T>(up), output<T>(gate_grad),
                           output<T>(up_grad));
  });
  return {gate_grad, up_grad};
}

namespace {

template <typename Result, typename... Args>
auto bound(const DeviceOperators& operators, Result (DeviceOperators::*method)(Args...) const) {
  return [&operators, method](Args... args) -> Result { return (operators.*method)(args...); };
}

}  // namespace

void register_operators(torch::Library& library, const DeviceOperators& operators) {
  DeviceOperators::for_each(
      [&](const char* name, const auto& method) { library.impl(name, bound(operators, method)); });
}

namespace {

template <typename T>
LaunchesFor<T> host_launches_for() {
  LaunchesFor<T> out;
  out.rms_norm = [](std::int64_t rows, std::int64_t dim, float eps, const T* x, const T* delta, const T* weight, T* sum,
                    T* result, float* rrms) {
    for (std::int64_t row = 0, at = 0; row < rows; ++row, at += dim)
      rms_norm_row<T>(HostTeam(), dim, eps, x + at, delta ? delta + at : nullptr, weight, sum ? sum + at : nullptr,
                      result + at, rrms + row);
  };
  out.rms_norm_backward = [](std::int64_t rows, std::int64_t dim, std::int64_t teams, const T* out_grad, const T* more,
                             const T* x, const T* weight, const float* rrms, T* x_grad, T* weight_grad,
                             float* columns) {
    std::fill(columns, columns + teams * dim, 0.0F);
    for (std::int64_t row = 0, at = 0; row < rows; ++row, at += dim)
      rms_norm_backward_row<T>(HostTeam(), dim, out_grad + at, more ? more + at : nullptr, x + at, weight, rrms[row],
                               x_grad + at, columns + row % teams * dim);
    Pack<float> strips[kLanes];
    for (std::int64_t block = 0; block < blocks_of_slots(dim); ++block)
      sum_teams<T>(HostTeam(), columns, teams, dim, block, strips, weight_grad);
  };
  out.rotate = [](const Rotation& shape, const T* x, const float* factors, bool conjugate, T* result) {
    const Places places = places_of_all<T>(shape);
    for (std::uint32_t i = 0; i < places.count; ++i) rotate_pack<T>(shape, places, i, x, factors, conjugate, result);
  };
  out.rotate_halves = [](const Rotation& shape, const T* x, const float* factors, bool conjugate, T* result) {
    const Places places = places_of_halves<T>(shape);
    for (std::uint32_t i = 0; i < places.count; ++i)
      rotate_halves_pack<T>(shape, places, i, x, factors, conjugate, result);
  };
  out.swiglu = [](std::int64_t count, const T* gate, const T* up, T* result) {
    for (std::int64_t i = 0; i < count / Pack<T>::kSize; ++i) swiglu_pack<T>(i, gate, up, result);
  };
  out.swiglu_backward = [](std::int64_t count, const T* out_grad, const T* gate, const T* up, T* gate_grad,
                           T* up_grad) {
    for (std::int64_t i = 0; i < count / Pack<T>::kSize; ++i)
      swiglu_backward_pack<T>(i, out_grad, gate, up, gate_grad, up_grad);
  };
  return out;
}

}  // namespace

Launches host_launches() { return {host_launches_for<float>(), host_launches_for<BFloat16Bits>()}; }

}  // namespace titan::device
