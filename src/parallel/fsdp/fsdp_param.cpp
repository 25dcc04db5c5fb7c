#include "parallel/fsdp/fsdp_param.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "base/error.h"
#include "nn/float8/gathered_float8.h"
#include "nn/ops/meta_run.h"
#include "trace/operation.h"

namespace titan::fsdp {
namespace {

// Replaces the storage behind all tensors that share it: autograd's saved references stay valid, and no version
// changes. The old content is lost; it is dead, or not written yet.
void replace_storage(const at::Tensor& tensor, at::DataPtr data, std::int64_t bytes) {
  auto* impl = tensor.storage().unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(std::move(data));
  impl->set_nbytes(static_cast<std::size_t>(bytes));
}

void resize_storage(const at::Tensor& tensor, std::int64_t bytes) {
  const auto& storage = tensor.storage();
  if (static_cast<std::int64_t>(storage.nbytes()) == bytes) return;
  const c10::OptionalDeviceGuard guard(tensor.is_cpu() ? std::nullopt : std::make_optional(tensor.device()));
  replace_storage(tensor,
                  bytes == 0 ? at::DataPtr(nullptr, tensor.device())
                             : storage.allocator()->allocate(static_cast<std::size_t>(bytes)),
                  bytes);
}

// Returns the memory of `tensor` as a pointer that keeps the tensor alive.
at::DataPtr share_memory_of(const at::Tensor& tensor) {
  auto* kept = new at::Tensor(tensor);
  return {tensor.data_ptr(), kept, [](void* context) { delete static_cast<at::Tensor*>(context); }, tensor.device()};
}

}  // namespace

Devices Devices::of(at::Device compute, const std::optional<CPUOffloadPolicy>& offload) {
  if (!offload || compute.is_cpu()) return {compute, compute};
  if (compute.is_meta()) return {compute, compute, offload->pin_memory, meta_run::stands_for_gpu()};
  return {compute, at::kCPU, offload->pin_memory};
}

FsdpParam::FsdpParam(std::string fqn, std::vector<nn::Parameter*> slots, std::int64_t shard_dim,
                     const dist::DeviceMesh& mesh, Devices devices)
    : fqn_(std::move(fqn)),
      slots_(std::move(slots)),
      shard_dim_(shard_dim),
      shard_size_(mesh.shape().back()),
      devices_(devices) {
  const at::Tensor whole = slots_.front()->tensor->detach();
  const std::string name = "[fsdp] " + fqn_ + " with shape " + dist::shape_text(whole.sizes());
  if (whole.dim() == 0)
    throw InternalError("[fsdp] " + fqn_ + " is a scalar; fully_shard shards a dim: make it 1-D with one element");
  if (whole.numel() == 0) throw InternalError(name + " has no elements to shard");
  if (!whole.is_contiguous()) throw InternalError(name + " is not contiguous");
  if (shard_dim_ < 0) shard_dim_ += whole.dim();
  if (shard_dim_ < 0 || shard_dim_ >= whole.dim())
    throw InternalError(name + " has no dim " + std::to_string(shard_dim) + " to shard");
  shape_ = whole.sizes().vec();
  const std::int64_t rows = shape_[shard_dim_];
  if (shard_dim_ != 0 && rows % shard_size_ != 0) {
    throw InternalError(name + " cannot be sharded along dim " + std::to_string(shard_dim_) + " over " +
                        std::to_string(shard_size_) + " ranks: only dim 0 may be uneven");
  }
  init_sharding(mesh);

  const auto [first, count] = dist::chunk_of(rows, shard_size_, mesh.coordinate().back());
  const std::int64_t chunk = dist::chunk_of(rows, shard_size_, 0).count;
  auto padded_shape = shape_;
  padded_shape[shard_dim_] = chunk;
  auto padded = whole.is_meta() ? at::zeros(padded_shape, whole.options()) : zeros(padded_shape, whole.scalar_type());
  if (!whole.is_meta() && count > 0) padded.narrow(shard_dim_, 0, count).copy_(whole.narrow(shard_dim_, first, count));
  set_sharded_param(std::move(padded), slots_.front()->tensor->requires_grad());
}

void FsdpParam::init_sharding(const dist::DeviceMesh& mesh) {
  const auto& before = slots_.front()->sharding;
  if (!before) {
    std::vector<dist::Placement> placements(mesh.num_axes(), dist::Replicate{});
    placements.back() = dist::Shard{shard_dim_};
    sharding_ = dist::Sharding::of(shape_, mesh, std::move(placements));
    return;
  }
  const std::string name = "[fsdp] " + fqn_ + ", " + dist::placements_text(before->placements);
  if (before->spec.local_shape != shape_) {
    throw InternalError(name + ": its local tensor has shape " + dist::shape_text(shape_) + ", which should be " +
                        dist::shape_text(before->spec.local_shape));
  }
  for (const auto& placement : before->placements) {
    if (std::holds_alternative<dist::Partial>(placement))
      throw InternalError(name + ": parameters cannot have a Partial placement");
  }
  try {
    sharding_ = before->cut_again(mesh, shard_dim_);
  } catch (const DistError& error) {
    throw DistError(name + ", cannot be sharded further: " + error.what());
  }
}

at::Tensor FsdpParam::zeros(at::IntArrayRef shape, at::ScalarType dtype) const {
  return at::zeros(shape, at::TensorOptions().dtype(dtype).device(devices_.shards).pinned_memory(devices_.pin_memory));
}

void FsdpParam::set_sharded_param(at::Tensor padded, bool requires_grad) {
  sharded_padded_ = std::move(padded);
  sharded_param_ = sharded_padded_.narrow(shard_dim_, 0, sharding_.spec.local_shape[shard_dim_])
                       .variable_data()
                       .set_requires_grad(requires_grad);
  param_dtype_ = sharded_padded_.scalar_type();
  for (auto* slot : slots_) {
    slot->sharding = sharding_;
    slot->owner = kOwner;
  }
  point_slots_at(sharded_param_);
}

void FsdpParam::point_slots_at(const at::Tensor& tensor) {
  for (auto* slot : slots_) *slot->tensor = tensor;
}

void FsdpParam::init_dtypes(const MixedPrecisionPolicy& policy) {
  param_dtype_ = policy.param_dtype.value_or(stored_dtype());
  // The bytes of such a chunk keep whatever follows them in a buffer aligned.
  constexpr std::int64_t kAlignment = 16;
  gathers_in_float8_ = slots_.front()->float8 && shard_size_ > 1 && chunk_numel() % kAlignment == 0;
}

void FsdpParam::materialize(at::ScalarType dtype) {
  if (sharded_padded_.is_meta())
    set_sharded_param(zeros(sharded_padded_.sizes(), dtype), sharded_param_.requires_grad());
}

bool FsdpParam::is_alias() const { return shard_size_ == 1 && param_dtype_ == stored_dtype() && !devices_.offloads(); }

void FsdpParam::alloc_gathered() {
  const std::int64_t numel = chunk_numel() * shard_size_;
  if (!gathered_.defined()) {
    gathered_ = is_alias() ? sharded_padded_.view(-1)
                           : at::empty({numel}, at::TensorOptions().dtype(gather_dtype()).device(devices_.compute));
    make_unsharded_param();
  } else if (!is_alias()) {
    resize_storage(gathered_, numel * static_cast<std::int64_t>(gathered_.element_size()));
  }
}

void FsdpParam::make_unsharded_param() {
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor full = gathered_.as_strided(shape_, c10::contiguous_strides(shape_)).variable_data();
  if (!gathers_in_float8_) {
    unsharded_param_ = full;
    return;
  }
  float8_values_ = full;
  unsharded_param_ = at::empty({0}, gathered_.options().dtype(param_dtype_));
  unsharded_param_.unsafeGetTensorImpl()->set_sizes_contiguous(shape_);
}

// Gives the layer the values that were gathered.
void FsdpParam::show_float8() const {
  if (gathers_in_float8_) slots_.front()->float8->matrix = {float8_values_, scale_};
}

bool FsdpParam::take_gathered(const at::Tensor& memory) {
  if (!is_in_rank_order()) return false;
  post_forward_part_.reset();
  const bool is_first = !gathered_.defined();
  if (is_first) gathered_ = at::empty({0}, memory.options());  // a storage of its own, as all others have
  replace_storage(gathered_, share_memory_of(memory), static_cast<std::int64_t>(memory.nbytes()));
  if (is_first) {
    gathered_.unsafeGetTensorImpl()->set_sizes_contiguous(memory.sizes());
    make_unsharded_param();
  }
  return true;
}

std::int64_t FsdpParam::send_numel() const {
  return post_forward_part_.defined() ? post_forward_part_.numel() : chunk_numel();
}

// Returns this rank's padded chunk, flat, on the compute device: a copy if it is offloaded.
at::Tensor FsdpParam::chunk_on_device() const {
  const auto flat = sharded_padded_.view(-1);
  if (!devices_.offloads()) return flat;
  return flat.to(devices_.compute, stored_dtype(), /*non_blocking=*/devices_.pin_memory, /*copy=*/true);
}

at::Tensor FsdpParam::send_buffer() const {
  if (post_forward_part_.defined()) return post_forward_part_;
  const auto chunk = chunk_on_device();
  return gathers_in_float8_ ? nn::scaled_to_float8(chunk, scale_, gather_dtype()) : chunk;
}

at::Tensor FsdpParam::gather_target(int num_ranks) {
  const bool in_order = is_in_rank_order();
  alloc_gathered();
  if (!in_order) return {};
  post_forward_part_.reset();
  return gathered_.view({num_ranks, -1});
}

// Rank r's chunk is the r-th of equal parts of the shard dim: [.., world, part, ..] in the full parameter.
void FsdpParam::copy_out(const at::Tensor& parts) {
  auto by_part = sharding_.spec.local_shape;
  by_part.insert(by_part.begin() + shard_dim_, shard_size_);
  auto by_rank = sharding_.spec.local_shape;
  by_rank.insert(by_rank.begin(), shard_size_);
  // Float8 has few operators; its bytes are copied.
  const auto to = gathers_in_float8_ ? gathered_.view(at::kByte) : gathered_;
  const auto from = gathers_in_float8_ ? parts.view(at::kByte) : parts;
  to.view(by_part).copy_(from.reshape(by_rank).movedim(0, shard_dim_));
}

at::Tensor FsdpParam::gather_target_of_self() {
  alloc_gathered();
  return is_alias() ? at::Tensor() : gathered_;
}

at::Tensor FsdpParam::grad_chunk(const at::Tensor& grad, std::int64_t rank) const {
  const std::int64_t rows = shape_[shard_dim_];
  const std::int64_t chunk = sharded_padded_.size(shard_dim_);
  const std::int64_t first = std::min(rows, rank * chunk);
  return grad.narrow(shard_dim_, first, std::min(rows - first, chunk));
}

void FsdpParam::to_unsharded() {
  // The parameter may have been frozen or unfrozen since. Set only on a change: it may be part of a graph by then.
  if (unsharded_param_.requires_grad() != sharded_param_.requires_grad())
    unsharded_param_.set_requires_grad(sharded_param_.requires_grad());
  point_slots_at(unsharded_param_);
  show_float8();
  unsharded_ = true;
}

void FsdpParam::to_sharded() {
  point_slots_at(sharded_param_);
  if (gathers_in_float8_) slots_.front()->float8->matrix = {};
  if (gathered_.defined() && !is_alias()) resize_storage(gathered_, 0);
  post_forward_part_.reset();
  unsharded_ = false;
}

void FsdpParam::to_sharded_post_forward(int group_rank, int group_size) {
  const std::int64_t part = gathered_.numel() / group_size;
  auto kept = gathered_.narrow(0, group_rank * part, part).clone();
  to_sharded();
  post_forward_part_ = std::move(kept);
}

at::Tensor FsdpParam::take_unsharded_grad() {
  if (!unsharded_param_.defined()) return {};
  at::Tensor grad = std::exchange(unsharded_param_.mutable_grad(), at::Tensor());
  if (!kept_grad_.defined()) return grad;
  if (grad.defined()) kept_grad_.add_(grad);
  return std::exchange(kept_grad_, at::Tensor());
}

void FsdpParam::keep_unsharded_grad(std::optional<at::ScalarType> reduce_dtype) {
  at::Tensor grad = take_unsharded_grad();
  if (grad.defined()) kept_grad_ = grad.to(reduce_dtype.value_or(grad.scalar_type()));
}

bool FsdpParam::accumulate_sharded_grad(const at::Tensor& chunk) {
  auto mine = chunk.narrow(0, 0, sharded_param_.numel()).view(sharding_.spec.local_shape);
  auto& grad = sharded_param_.mutable_grad();
  // If there is a gradient already, adding to it needs the new one on the host at once.
  const bool in_background = devices_.offloads() && devices_.pin_memory && !grad.defined();
  {
    const Operation operation({nullptr, devices_.offloads() ? MemoryUse::kHost : current_memory_use()}, fqn());
    mine = mine.to(devices_.shards, stored_dtype(), /*non_blocking=*/in_background, /*copy=*/devices_.plays_offload);
  }
  if (grad.defined()) {
    grad.add_(mine);
  } else {
    grad = std::move(mine);
  }
  return in_background;
}

}  // namespace titan::fsdp
