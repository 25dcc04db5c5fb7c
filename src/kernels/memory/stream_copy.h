// Copies data larger than the caches: the shards, gradients and gathered parameters of a training step on CPU. An
// ordinary store first reads the cache line that it writes, a third of such a copy's traffic, and the line is evicted
// before anybody reads it. Streaming stores avoid both.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/memory/stream_copy_rows.h"

namespace titan::kernels {

// Returns the fastest kernels of stream_copy_rows.h that this processor runs.
const StreamCopies& best_stream_copies();

// True if stream_copy() takes these: on CPU, contiguous, of the same shape, and of the same dtype or float32 and
// bfloat16.
bool takes_stream_copy(const at::Tensor& target, const at::Tensor& source);

// Copies `source` to `target`, cast to its dtype, with the bits of at::Tensor::copy_() except for a NaN's payload. Runs
// on ATen's threads. Not recorded by autograd.
void stream_copy(const StreamCopies& kernels, const at::Tensor& target, const at::Tensor& source);

// Minimum bytes written at once for streaming stores: less is read from a cache afterwards.
inline constexpr std::int64_t kSmallestStreamed = std::int64_t{2} << 20;

// Runs targets[i].copy_(sources[i]) for tensors that do not overlap. On CPU, streams past the caches if the targets
// together have kSmallestStreamed bytes and stream_copy() takes them; on a device, runs as few kernels as
// at::_foreach_copy_.
void copy_past_caches(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& sources);
void copy_past_caches(const at::Tensor& target, const at::Tensor& source);

}  // namespace titan::kernels
