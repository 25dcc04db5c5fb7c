// One parameter under fully_shard. The tensors of its life (after torch/distributed/fsdp/_fully_shard/_fsdp_param.py):
//
//   sharded_padded    the rank's chunk of dim 0, zero-padded to ceil(d0 / world) rows, so that all ranks send equally much;
//                     lives as long as the parameter, in the stored dtype (float32)
//   sharded_param     the rows of it that exist: a leaf, what optimizer and checkpoints see; may be empty
//   gathered          the padded chunks of all ranks one after the other, in the compute dtype; its storage is freed on
//                     reshard and filled again on unshard, while the tensor object stays, because autograd refers to it
//   unsharded_param   the whole parameter: the first numel elements of `gathered`; a leaf, what forward() sees
//   unsharded grad    what autograd accumulates for unsharded_param, in the compute dtype
//   sharded grad      sharded_param.grad(): this rank's rows of the reduced gradient, in the stored dtype
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/fsdp/policies.h"

namespace titan::fsdp {

class FsdpParam {
 public:
  // Shards the parameter over `shard_size` ranks and puts the shard into its slots. The parameter may be on the meta device,
  // or hold values, of which this rank keeps its rows. `slots`: every place in the group's modules that shares it.
  FsdpParam(std::string fqn, std::vector<nn::Parameter*> slots, int shard_rank, int shard_size);

  // Fixes the dtypes that the policy means for this parameter. Called at the first forward.
  void init_dtypes(const MixedPrecisionPolicy& policy);

  // Replaces a shard on the meta device by zeros on `device`. No effect on a shard that is elsewhere.
  void materialize(at::Device device, at::ScalarType dtype);

  const std::string& fqn() const { return fqn_; }
  const at::Tensor& sharded_param() const { return sharded_param_; }
  const at::Tensor& sharded_padded() const { return sharded_padded_; }
  const at::Tensor& unsharded_param() const { return unsharded_param_; }
  at::ScalarType stored_dtype() const { return sharded_padded_.scalar_type(); }
  at::ScalarType param_dtype() const { return param_dtype_; }
  // Elements of the padded chunk of one rank.
  std::int64_t chunk_numel() const { return chunk_rows_ * row_numel_; }
  std::int64_t chunk_rows() const { return chunk_rows_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  bool is_unsharded() const { return unsharded_; }

  // [shard_size * chunk_numel], storage allocated; where the all-gather's result is written.
  at::Tensor& alloc_gathered();
  void to_unsharded();  // slots point at the whole parameter
  void to_sharded();    // slots point at the shard; the gathered storage is freed

  // The gradient that autograd left on the whole parameter, taken away from it; undefined when there is none.
  at::Tensor take_unsharded_grad();
  // Adds this rank's padded chunk of the reduced gradient, [chunk_numel] in the reduce dtype, to the shard's gradient.
  void accumulate_sharded_grad(const at::Tensor& chunk);

 private:
  void set_sharded_param(at::Tensor padded);
  void point_slots_at(const at::Tensor& tensor);

  std::string fqn_;
  std::vector<nn::Parameter*> slots_;
  int shard_size_;
  std::vector<std::int64_t> shape_;
  std::int64_t chunk_rows_ = 0;
  std::int64_t row_numel_ = 1;
  dist::ShardSpec spec_;
  bool requires_grad_ = true;
  at::ScalarType param_dtype_ = at::kFloat;

  at::Tensor sharded_padded_;
  at::Tensor sharded_param_;
  at::Tensor gathered_;
  at::Tensor unsharded_param_;
  bool unsharded_ = false;
};

}  // namespace titan::fsdp
