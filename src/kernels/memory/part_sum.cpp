#include "kernels/memory/part_sum.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/cpu/isa.h"
#include "kernels/memory/stream_copy.h"

namespace titan::kernels {
namespace {

template <typename T, typename Kernel>
void run(Kernel kernel, const at::Tensor& sum, const std::vector<at::Tensor>& parts,
         const std::vector<std::size_t>& order, const SumRange& range, float divisor) {
  std::vector<const T*> data;
  data.reserve(order.size());
  for (const auto i : order) data.push_back(static_cast<const T*>(parts[i].const_data_ptr()) + range.begin);
  const bool past_caches = static_cast<std::int64_t>(sum.nbytes()) >= kSmallestStreamed;
  kernel({data.data(), static_cast<std::int64_t>(data.size()), range.end - range.begin}, divisor, past_caches,
         static_cast<float*>(sum.mutable_data_ptr()) + range.begin);
}

}  // namespace

const PartSums& best_part_sums() { return TITAN_BEST_KERNELS(kPartSums); }

bool takes_part_sum(const at::Tensor& sum, const std::vector<at::Tensor>& parts) {
  const auto type = parts.at(0).scalar_type();
  const auto fits = [&](const at::Tensor& part) {
    return part.is_cpu() && part.is_contiguous() && part.numel() == sum.numel() && part.scalar_type() == type;
  };
  return sum.is_cpu() && sum.is_contiguous() && sum.scalar_type() == at::kFloat &&
         (type == at::kFloat || type == at::kBFloat16) && std::all_of(parts.begin(), parts.end(), fits);
}

void part_sum(const PartSums& kernels, const at::Tensor& sum, const std::vector<at::Tensor>& parts,
              const std::vector<std::size_t>& order, const SumRange& range, float divisor) {
  if (parts.at(0).scalar_type() == at::kFloat) {
    run<float>(kernels.of_float, sum, parts, order, range, divisor);
  } else {
    run<BFloat16Bits>(kernels.of_bfloat16, sum, parts, order, range, divisor);
  }
}

}  // namespace titan::kernels
