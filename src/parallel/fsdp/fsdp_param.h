// One parameter under fully_shard. The tensors of its life (after torch/distributed/fsdp/_fully_shard/_fsdp_param.py):
//
//   sharded_padded    the rank's chunk of the shard dim, for dim 0 zero-padded to ceil(d0 / world) rows, so that all
//                     ranks send equally much; lives as long as the parameter, in the stored dtype (float32)
//   sharded_param     the rows of it that exist: a leaf, what optimizer and checkpoints see; may be empty
//   gathered          the padded chunks of all ranks one after the other, in the compute dtype; its storage is freed on
//                     reshard and filled again on unshard, while the tensor object stays, because autograd refers to it
//   unsharded_param   the whole parameter: the first numel elements of `gathered`; a leaf, what forward() sees
//   unsharded grad    what autograd accumulates for unsharded_param, in the compute dtype; kept in the reduce dtype over
//                     backwards that do not reduce
//   sharded grad      sharded_param.grad(): this rank's rows of the reduced gradient, in the stored dtype
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/fsdp/policies.h"

namespace titan::fsdp {

// Of the parameters that a fully_shard call took (nn::Parameter::owner).
inline constexpr const char* kOwner = "fsdp";

// Where shards live and where they are gathered; two devices only with CPUOffloadPolicy.
struct Devices {
  at::Device compute;
  at::Device shards;
  bool pin_memory = false;  // of shards on the host
  // True if both are the meta device, which stands for a GPU and its host (nn/ops/meta_run.h).
  bool plays_offload = false;

  static Devices of(at::Device compute, const std::optional<CPUOffloadPolicy>& offload);
  bool offloads() const { return plays_offload || shards != compute; }
};

class FsdpParam {
 public:
  // Shards the parameter along `shard_dim` over the last axis of `mesh` and puts the shard into its slots. The
  // parameter may be on the meta device, or hold values, of which this rank keeps its rows. `slots`: every place in the
  // group's modules that shares it. Of a parameter that tensor parallelism split before, this rank's part is what is
  // sharded here and gathered for computation; `mesh` and that split's must then be slices of one mesh. Throws
  // InternalError: a scalar, a dim that it does not have, a dim other than 0 that is not divisible, no elements;
  // DistError: unrelated meshes.
  FsdpParam(std::string fqn, std::vector<nn::Parameter*> slots, std::int64_t shard_dim, const dist::DeviceMesh& mesh,
            Devices devices);

  // Fixes the dtypes that the policy means for this parameter. Called at the first forward.
  void init_dtypes(const MixedPrecisionPolicy& policy);

  // Replaces a shard on the meta device by zeros where shards live. No effect on a shard that is elsewhere.
  void materialize(at::ScalarType dtype);

  // The name below the root, once that is known; until then below the module given to fully_shard.
  const std::string& fqn() const { return fqn_; }
  void set_fqn(std::string fqn) { fqn_ = std::move(fqn); }
  const std::vector<nn::Parameter*>& slots() const { return slots_; }
  const at::Tensor& sharded_param() const { return sharded_param_; }
  const at::Tensor& sharded_padded() const { return sharded_padded_; }
  const at::Tensor& unsharded_param() const { return unsharded_param_; }
  const Devices& devices() const { return devices_; }
  at::ScalarType stored_dtype() const { return sharded_padded_.scalar_type(); }
  at::ScalarType param_dtype() const { return param_dtype_; }
  // Elements of the padded chunk of one rank.
  std::int64_t chunk_numel() const { return sharded_padded_.numel(); }
  std::int64_t shard_dim() const { return shard_dim_; }
  bool is_unsharded() const { return unsharded_; }

  // What this rank sends in an all-gather, flat, on the compute device: its padded chunk in the stored dtype, or after
  // to_sharded_post_forward() its part among neighbours in param_dtype.
  at::Tensor send_buffer() const;
  std::int64_t send_numel() const;
  // Allocates the gathered storage and returns it as [ranks, send_numel] where the parts of all ranks stand in it one
  // after the other; undefined when they do not (another shard dim than 0): then copy_out() has to place them.
  at::Tensor gather_target(int num_ranks);
  // The same where the ranks' parts, one after the other, exist already, in memory that is to be read only: the gathered
  // storage is that memory then, which is kept until it is freed. False, and nothing done, when the parts do not stand in
  // the parameter one after the other.
  bool take_gathered(const at::Tensor& memory);
  void copy_out(const at::Tensor& parts);  // [ranks, send_numel] in param_dtype
  // With one shard the whole parameter is the shard itself (undefined), or its cast, which is to be written here, flat.
  at::Tensor gather_target_of_self();
  // What `rank` gets of a whole gradient, without padding: a view, of chunk_numel elements at most.
  at::Tensor grad_chunk(const at::Tensor& grad, std::int64_t rank) const;
  void to_unsharded();  // slots point at the whole parameter
  void to_sharded();    // slots point at the shard; the gathered storage is freed
  // Like to_sharded(), and keeps this rank's part of the gathered parameter among `group_size` neighbours.
  void to_sharded_post_forward(int group_rank, int group_size);

  // The gradient that autograd left on the whole parameter, taken away from it; undefined when there is none.
  at::Tensor take_unsharded_grad();
  // Without a reduction after this backward: keeps the gradient for the next, in the reduce dtype.
  void keep_unsharded_grad(std::optional<at::ScalarType> reduce_dtype);
  // Adds this rank's padded chunk of the reduced gradient, [chunk_numel] in the stored dtype, to the shard's gradient.
  // True when a copy to the host is under way on the current stream: the host must wait for it.
  bool accumulate_sharded_grad(const at::Tensor& chunk);

 private:
  // One shard in the compute dtype: the whole parameter shares the shard's memory.
  bool is_alias() const;
  bool is_in_rank_order() const { return shard_dim_ == 0 || post_forward_part_.defined(); }
  void alloc_gathered();
  void make_unsharded_param();
  at::Tensor zeros(at::IntArrayRef shape, at::ScalarType dtype) const;  // where shards live
  void init_sharding(const dist::DeviceMesh& mesh);
  void set_sharded_param(at::Tensor padded, bool requires_grad);
  void point_slots_at(const at::Tensor& tensor);

  std::string fqn_;
  std::vector<nn::Parameter*> slots_;
  std::int64_t shard_dim_;
  int shard_size_;
  Devices devices_;
  std::vector<std::int64_t> shape_;  // of what is gathered: with tensor parallelism this rank's part
  dist::Sharding sharding_;
  at::ScalarType param_dtype_ = at::kFloat;

  at::Tensor sharded_padded_;
  at::Tensor sharded_param_;
  at::Tensor gathered_;
  at::Tensor unsharded_param_;
  at::Tensor post_forward_part_;  // between forward and backward, with a group size for reshard_after_forward
  at::Tensor kept_grad_;          // whole, of earlier backwards without a reduction
  bool unsharded_ = false;
};

}  // namespace titan::fsdp
