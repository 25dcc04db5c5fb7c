// Hash of a tensor's bits, for comparing copies of it, or it with itself later: reads it once, at about the speed of
// memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace titan::train {

// The hash of a tensor of signed 8-byte words w[i] is the sum of w[i] ^ (w[i] >> 32) times an odd number of its place,
// modulo 2^64; parts of a tensor are hashed one after the other, and their hashes combined by Horner's rule. A tensor
// with one changed bit has another hash for certain, since an odd factor loses nothing; the shift tells apart changes
// of the highest bits, such as two signs, which all odd factors treat alike.
class BitsHash {
 public:
  // `plain`: computes with torch's operators on the host, too; the hashes are the same.
  explicit BitsHash(bool plain = false) : plain_(plain) {}

  // Returns the hash of the elements' bits in row-major order, int64, 0-d, on the device of `tensor`; nothing is read
  // back. Any dtype and size. Equal on devices of one kind only, because the parts' size depends on it.
  at::Tensor operator()(const at::Tensor& tensor);

 private:
  // Holds the tensors that hashing a part on a device needs.
  struct Workspace {
    at::Tensor factors;   // int64 [words of a part]
    at::Tensor products;  // the same
  };
  Workspace& workspace_on(at::Device device);

  at::Tensor by_operators(const at::Tensor& bytes);
  std::uint64_t on_host(const at::Tensor& bytes);

  bool plain_;
  std::vector<std::pair<at::Device, Workspace>> workspaces_;
};

}  // namespace titan::train
