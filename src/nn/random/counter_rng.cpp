#include "nn/random/counter_rng.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "distributed/device.h"
#include "kernels/cpu/parallel.h"

namespace titan::nn {

void fill_counter_uniform(at::Tensor out, std::uint64_t seed, std::uint64_t stream, std::int64_t first_index) {
  TITAN_CHECK(out.is_contiguous() && out.scalar_type() == at::kFloat,
              "fill_counter_uniform needs a contiguous float32 tensor");
  if (!out.is_cpu()) {
    dist::accelerator()->fill_uniform(std::move(out), seed, stream, first_index);
    return;
  }
  auto* data = out.data_ptr<float>();
  kernels::parallel_for(0, out.numel(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      data[i] = kernels::counter_uniform(seed, stream, static_cast<std::uint64_t>(first_index + i));
  });
}

}  // namespace titan::nn
