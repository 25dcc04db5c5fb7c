// A number for the bits of a tensor that does not depend on how the tensor is cut into shards.
#pragma once

#include <ATen/core/Tensor.h>

#include "facts/shard_spec.h"

namespace titan::train {

// The sum, modulo 2^64, of a hash of the bits and the place of each element: those of the local part `local` of shape
// spec.local_shape, any dtype, at the places that it has in the whole tensor (the row-major index). The sums of all
// parts of a tensor add up to that of the whole. It is computed where `local` lies, which for an offloaded shard is the
// host: int64, 0-d, on `device`. Nothing is read back. Undefined and empty tensors give 0.
//
// The hash is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014)
// without its first step, over bits and index, each times an odd constant.
at::Tensor tensor_checksum(const at::Tensor& local, const dist::ShardSpec& spec, at::Device device);

}  // namespace titan::train
