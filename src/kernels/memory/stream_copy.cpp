#include "kernels/memory/stream_copy.h"

#include <ATen/ATen.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace titan::kernels {
namespace {

constexpr std::int64_t kElementsPerThread = std::int64_t{1} << 17;  // minimum

bool has_kernel(at::ScalarType target, at::ScalarType source) {
  return target == source || (target == at::kBFloat16 && source == at::kFloat) ||
         (target == at::kFloat && source == at::kBFloat16);
}

}  // namespace

const StreamCopies& best_stream_copies() { return TITAN_BEST_KERNELS(kStreamCopies); }

bool takes_stream_copy(const at::Tensor& target, const at::Tensor& source) {
  return target.is_cpu() && source.is_cpu() && target.sizes() == source.sizes() && target.is_contiguous() &&
         source.is_contiguous() && has_kernel(target.scalar_type(), source.scalar_type());
}

void stream_copy(const StreamCopies& kernels, const at::Tensor& target, const at::Tensor& source) {
  auto* const to = static_cast<std::byte*>(target.mutable_data_ptr());
  const auto* const from = static_cast<const std::byte*>(source.const_data_ptr());
  const std::int64_t to_size = target.element_size(), from_size = source.element_size();
  parallel_for(0, target.numel(), kElementsPerThread, [&](std::int64_t first, std::int64_t last) {
    auto* const part = to + first * to_size;
    const auto* const source_part = from + first * from_size;
    if (target.scalar_type() == source.scalar_type()) {
      kernels.copy((last - first) * to_size, source_part, part);
    } else if (target.scalar_type() == at::kBFloat16) {
      kernels.narrow(last - first, reinterpret_cast<const float*>(source_part), reinterpret_cast<BFloat16Bits*>(part));
    } else {
      kernels.widen(last - first, reinterpret_cast<const BFloat16Bits*>(source_part), reinterpret_cast<float*>(part));
    }
  });
  target.unsafeGetTensorImpl()->bump_version();  // as in-place operators do
}

void copy_past_caches(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& sources) {
  if (targets.empty()) return;
  if (!targets.front().is_cpu()) {
    auto in_place = targets;
    at::_foreach_copy_(in_place, sources);
    return;
  }
  std::int64_t bytes = 0;
  for (const auto& target : targets) bytes += static_cast<std::int64_t>(target.nbytes());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (bytes >= kSmallestStreamed && takes_stream_copy(targets[i], sources.at(i))) {
      stream_copy(best_stream_copies(), targets[i], sources[i]);
    } else {
      targets[i].copy_(sources.at(i));
    }
  }
}

void copy_past_caches(const at::Tensor& target, const at::Tensor& source) {
  copy_past_caches(std::vector{target}, std::vector{source});
}

}  // namespace titan::kernels
