// Checksum of a tensor's bits that does not depend on how the tensor is sharded.
#pragma once

#include <ATen/core/Tensor.h>

#include "facts/shard_spec.h"

namespace titan::train {

// Returns the sum, modulo 2^64, of a hash of the bits and the row-major index in the full tensor of each element of
// `local`, the local part of shape spec.local_shape, any dtype. The sums of all parts of a tensor add up to the sum of
// the full tensor. Computes on the device of `local`, which is the host for an offloaded shard. The result is int64,
// 0-d, on `device`; nothing is read back. Undefined and empty tensors give 0.
//
// The hash is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014)
// without its first step, over bits and index, each multiplied by an odd constant.
at::Tensor tensor_checksum(const at::Tensor& local, const dist::ShardSpec& spec, at::Device device);

}  // namespace titan::train
