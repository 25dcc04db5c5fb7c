// One parameter under fully_shard. Its tensors (after torch/distributed/fsdp/_fully_shard/_fsdp_param.py):
//
//   sharded_padded    the rank's chunk of the shard dim, for dim 0 zero-padded to ceil(d0 / world) rows, so that all
//                     ranks send the same amount; lives as long as the parameter, in the stored dtype (float32)
//   sharded_param     its rows without padding: a leaf, seen by optimizer and checkpoints; may be empty
//   gathered          the padded chunks of all ranks one after the other, in the compute dtype or in float8; its
//                     storage is freed on reshard and filled again on unshard, but the tensor object stays, because
//                     autograd refers to it
//   unsharded_param   the full parameter: the first numel elements of `gathered`; a leaf, seen by forward(). If that is
//                     in float8, a leaf of the compute dtype without values, beside which the layer sees them
//                     (nn/float8/gathered_float8.h)
//   unsharded grad    the gradient that autograd accumulates for unsharded_param, in the compute dtype; kept in the
//                     reduce dtype over backwards that do not reduce
//   sharded grad      sharded_param.grad(): this rank's rows of the reduced gradient, in the stored dtype
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/fsdp/policies.h"

namespace titan::fsdp {

// nn::Parameter::owner of the parameters that a fully_shard call took.
inline constexpr const char* kOwner = "fsdp";

// The devices on which shards live and are gathered. They differ only with CPUOffloadPolicy.
struct Devices {
  at::Device compute;
  at::Device shards;
  bool pin_memory = false;  // for shards on the host
  // True if both are the meta device, which stands for a GPU and its host (nn/ops/meta_run.h).
  bool plays_offload = false;

  static Devices of(at::Device compute, const std::optional<CPUOffloadPolicy>& offload);
  bool offloads() const { return plays_offload || shards != compute; }
};

class FsdpParam {
 public:
  // Shards the parameter along `shard_dim` over the last axis of `mesh` and puts the shard into its slots. The
  // parameter may be on the meta device; if it holds values, this rank keeps its rows of them. `slots`: every place
  // in the group's modules that shares it. If tensor parallelism split the parameter before, this rank's part is
  // sharded here and gathered for computation; `mesh` and that split's must then be slices of one mesh. Throws
  // InternalError for a scalar, a dim that it does not have, a dim other than 0 that is not divisible, or no
  // elements; DistError for unrelated meshes.
  FsdpParam(std::string fqn, std::vector<nn::Parameter*> slots, std::int64_t shard_dim, const dist::DeviceMesh& mesh,
            Devices devices);

  // Sets the compute dtype that the policy gives this parameter. Called at the first forward.
  void init_dtypes(const MixedPrecisionPolicy& policy);

  // Replaces a shard on the meta device by zeros on the shards' device. Does nothing to other shards.
  void materialize(at::ScalarType dtype);

  // The name below the root once that is known; until then below the module given to fully_shard.
  const std::string& fqn() const { return fqn_; }
  void set_fqn(std::string fqn) { fqn_ = std::move(fqn); }
  const std::vector<nn::Parameter*>& slots() const { return slots_; }
  const at::Tensor& sharded_param() const { return sharded_param_; }
  const at::Tensor& sharded_padded() const { return sharded_padded_; }
  const at::Tensor& unsharded_param() const { return unsharded_param_; }
  const Devices& devices() const { return devices_; }
  at::ScalarType stored_dtype() const { return sharded_padded_.scalar_type(); }
  at::ScalarType param_dtype() const { return param_dtype_; }
  // Float8 if the layer can compute with that and there are other ranks to gather from; otherwise param_dtype().
  at::ScalarType gather_dtype() const { return gathers_in_float8_ ? at::kFloat8_e4m3fn : param_dtype_; }
  bool gathers_in_float8() const { return gathers_in_float8_; }
  // Returns the gathered values: unsharded_param(), or its values in float8.
  const at::Tensor& gathered_values() const { return gathers_in_float8_ ? float8_values_ : unsharded_param_; }
  // Elements of the padded chunk of one rank.
  std::int64_t chunk_numel() const { return sharded_padded_.numel(); }
  std::int64_t shard_dim() const { return shard_dim_; }
  int num_shards() const { return shard_size_; }
  bool is_unsharded() const { return unsharded_; }

  // Returns what this rank sends in an all-gather, flat, on the compute device: its padded chunk in the stored dtype,
  // or in float8 if it is gathered so; after to_sharded_post_forward() its part among neighbors in gather_dtype().
  at::Tensor send_buffer() const;
  // True if the next send_buffer() rounds to float8, and so needs the scale.
  bool needs_scale() const { return gathers_in_float8_ && !post_forward_part_.defined(); }
  // Sets the scale of the float8 values, float32 []: the same on all ranks that gather (float8_scales.h).
  void set_scale(const at::Tensor& scale) { scale_ = scale; }
  std::int64_t send_numel() const;
  // Allocates the gathered storage. Returns it as [ranks, send_numel] if it has the parts of all ranks one after the
  // other; otherwise (a shard dim other than 0) undefined: copy_out() must then place them.
  at::Tensor gather_target(int num_ranks);
  // Uses `memory`, which has the ranks' parts one after the other and is read-only, as the gathered storage, and
  // keeps it alive until that is freed. Returns false, and does nothing, if the parameter does not have the parts one
  // after the other.
  bool take_gathered(const at::Tensor& memory);
  void copy_out(const at::Tensor& parts);  // [ranks, send_numel] in gather_dtype()
  // Returns, for one shard, the flat gathered storage, to which the caller writes the cast shard; undefined if the
  // full parameter is the shard itself.
  at::Tensor gather_target_of_self();
  // Returns `rank`'s part of a full gradient, without padding: a view of at most chunk_numel elements.
  at::Tensor grad_chunk(const at::Tensor& grad, std::int64_t rank) const;
  void to_unsharded();  // slots point at the full parameter
  void to_sharded();    // slots point at the shard; the gathered storage is freed
  // Like to_sharded(), but keeps this rank's part of the gathered parameter among `group_size` neighbors.
  void to_sharded_post_forward(int group_rank, int group_size);

  // Takes the gradient that autograd left on the full parameter, plus the kept one; undefined if there is none.
  at::Tensor take_unsharded_grad();
  // Keeps the gradient for the next backward, in the reduce dtype, when this backward does not reduce.
  void keep_unsharded_grad(std::optional<at::ScalarType> reduce_dtype);
  // Adds this rank's padded chunk of the reduced gradient, [chunk_numel] in the stored dtype, to the shard's
  // gradient. Returns true if a copy to the host is in flight on the current stream: the host must wait for it.
  bool accumulate_sharded_grad(const at::Tensor& chunk);

 private:
  // True if the full parameter shares the shard's memory: there is one shard, not offloaded, in the compute dtype.
  bool is_alias() const;
  bool is_in_rank_order() const { return shard_dim_ == 0 || post_forward_part_.defined(); }
  void alloc_gathered();
  void make_unsharded_param();
  void show_float8() const;
  at::Tensor chunk_on_device() const;
  at::Tensor zeros(at::IntArrayRef shape, at::ScalarType dtype) const;  // on the shards' device
  void init_sharding(const dist::DeviceMesh& mesh);
  void set_sharded_param(at::Tensor padded, bool requires_grad);
  void point_slots_at(const at::Tensor& tensor);

  std::string fqn_;
  std::vector<nn::Parameter*> slots_;
  std::int64_t shard_dim_;
  int shard_size_;
  Devices devices_;
  std::vector<std::int64_t> shape_;  // gathered shape; with tensor parallelism that of this rank's part
  dist::Sharding sharding_;
  at::ScalarType param_dtype_ = at::kFloat;
  bool gathers_in_float8_ = false;

  at::Tensor sharded_padded_;
  at::Tensor sharded_param_;
  at::Tensor gathered_;
  at::Tensor unsharded_param_;
  at::Tensor float8_values_;      // the full parameter in float8, if it is gathered so; shares `gathered_`
  at::Tensor scale_;              // of the last rounding to float8
  at::Tensor post_forward_part_;  // between forward and backward, with a group size for reshard_after_forward
  at::Tensor kept_grad_;          // full gradient of earlier backwards without a reduction
  bool unsharded_ = false;
};

}  // namespace titan::fsdp
