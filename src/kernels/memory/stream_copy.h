// Copies of what is larger than the caches keep: the shards, gradients and gathered parameters of a training step on
// CPU. An ordinary store first reads the line that it writes, a third of such a copy's traffic, and what it leaves in
// the cache is gone before anybody reads it; streaming stores do neither.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/memory/stream_copy_rows.h"

namespace titan::kernels {

// The fastest of stream_copy_rows.h that this processor runs.
const StreamCopies& best_stream_copies();

// Whether stream_copy() takes these: on CPU, contiguous, of one shape, and of one dtype or float32 and bfloat16.
bool takes_stream_copy(const at::Tensor& target, const at::Tensor& source);

// target = source, cast to its dtype; the bits of at::Tensor::copy_() but for the payload of a not-a-number. On ATen's
// threads. Not recorded by autograd.
void stream_copy(const StreamCopies& kernels, const at::Tensor& target, const at::Tensor& source);

// Bytes of what is written at once: less than that is read from a cache afterwards.
inline constexpr std::int64_t kSmallestStreamed = std::int64_t{2} << 20;

// targets[i].copy_(sources[i]) for tensors that do not overlap, past the caches where the targets are of
// kSmallestStreamed together and stream_copy() takes them. On a device in as few kernels as at::_foreach_copy_ makes.
void copy_past_caches(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& sources);
void copy_past_caches(const at::Tensor& target, const at::Tensor& source);

}  // namespace titan::kernels
