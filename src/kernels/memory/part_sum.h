// Sums ranks' parts of a reduction on CPU, in one pass. ATen needs a pass per part that it widens, one per part that it
// adds, and one for the division.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/memory/part_sum_rows.h"

namespace titan::kernels {

// Returns the fastest kernels of part_sum_rows.h that this processor runs.
const PartSums& best_part_sums();

// True if part_sum() takes these: on CPU, contiguous, of the same size; `sum` in float32, the parts all in float32 or
// all in bfloat16.
bool takes_part_sum(const at::Tensor& sum, const std::vector<at::Tensor>& parts);

struct SumRange {
  std::int64_t begin, end;
};

// Computes sum = (parts[order[0]] + parts[order[1]] + ...) / divisor in `range`, with the bits of at::add() and
// at::Tensor::div_(). A part may be `sum` itself. Streams past the caches if `sum` has at least kSmallestStreamed bytes
// (stream_copy.h). Runs on this thread; not recorded by autograd.
void part_sum(const PartSums& kernels, const at::Tensor& sum, const std::vector<at::Tensor>& parts,
              const std::vector<std::size_t>& order, const SumRange& range, float divisor);

}  // namespace titan::kernels
