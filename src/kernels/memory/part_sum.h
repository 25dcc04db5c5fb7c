// Sums of ranks' parts of a reduction on CPU: ATen would take a pass for each part that it widens, for each that it adds,
// and for the division.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/memory/part_sum_rows.h"

namespace titan::kernels {

// The fastest of part_sum_rows.h that this processor runs.
const PartSums& best_part_sums();

// Whether part_sum() takes these: on CPU, contiguous, of one size; `sum` in float32, the parts all in float32 or all in
// bfloat16.
bool takes_part_sum(const at::Tensor& sum, const std::vector<at::Tensor>& parts);

struct SumRange {
  std::int64_t begin, end;
};

// In that range: sum = (parts[order[0]] + parts[order[1]] + ...) / divisor, the bits of at::add() and at::Tensor::div_().
// A part may be `sum` itself. Past the caches where `sum` has kSmallestStreamed bytes (stream_copy.h) or more. On this
// thread; not recorded by autograd.
void part_sum(const PartSums& kernels, const at::Tensor& sum, const std::vector<at::Tensor>& parts,
              const std::vector<std::size_t>& order, const SumRange& range, float divisor);

}  // namespace titan::kernels
