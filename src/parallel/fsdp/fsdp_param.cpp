#include "parallel/fsdp/fsdp_param.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/variable.h>

#include "base/error.h"

namespace titan::fsdp {
namespace {

// Storage is replaced behind the tensors that share it: autograd's saved references stay valid, and no version changes. The
// old content is not kept: it is dead, or not written yet.
void resize_storage(const at::Tensor& tensor, std::int64_t bytes) {
  const auto& storage = tensor.storage();
  if (static_cast<std::int64_t>(storage.nbytes()) == bytes) return;
  auto* impl = storage.unsafeGetStorageImpl();
  const c10::OptionalDeviceGuard guard(tensor.is_cpu() ? std::nullopt : std::make_optional(tensor.device()));
  impl->set_data_ptr_noswap(bytes == 0 ? at::DataPtr(nullptr, tensor.device())
                                       : impl->allocator()->allocate(static_cast<std::size_t>(bytes)));
  impl->set_nbytes(static_cast<std::size_t>(bytes));
}

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

FsdpParam::FsdpParam(std::string fqn, std::vector<nn::Parameter*> slots, int shard_rank, int shard_size)
    : fqn_(std::move(fqn)), slots_(std::move(slots)), shard_size_(shard_size) {
  const at::Tensor whole = slots_.front()->tensor->detach();
  if (whole.dim() == 0) throw InternalError("[fsdp] " + fqn_ + " is a scalar; fully_shard shards dim 0: make it 1-D with one element");
  if (!whole.is_contiguous()) throw InternalError("[fsdp] " + fqn_ + " with shape " + shape_text(whole.sizes()) + " is not contiguous");
  requires_grad_ = slots_.front()->tensor->requires_grad();
  shape_ = whole.sizes().vec();
  const std::int64_t rows = shape_[0];
  chunk_rows_ = (rows + shard_size - 1) / shard_size;  // torch.chunk's rule
  for (std::size_t d = 1; d < shape_.size(); ++d) row_numel_ *= shape_[d];

  const std::int64_t first = std::min(rows, shard_rank * chunk_rows_);
  const std::int64_t count = std::min(rows - first, chunk_rows_);
  spec_ = dist::ShardSpec::replicated(shape_);
  spec_.offset[0] = first;
  spec_.local_shape[0] = count;

  auto padded_shape = shape_;
  padded_shape[0] = chunk_rows_;
  auto padded = at::zeros(padded_shape, whole.options());
  if (!whole.is_meta() && count > 0) padded.narrow(0, 0, count).copy_(whole.narrow(0, first, count));
  set_sharded_param(std::move(padded));
}

void FsdpParam::set_sharded_param(at::Tensor padded) {
  sharded_padded_ = std::move(padded);
  sharded_param_ = sharded_padded_.narrow(0, 0, spec_.local_shape[0]).variable_data().set_requires_grad(requires_grad_);
  param_dtype_ = sharded_padded_.scalar_type();
  for (auto* slot : slots_) slot->spec = spec_;
  point_slots_at(sharded_param_);
}

void FsdpParam::point_slots_at(const at::Tensor& tensor) {
  for (auto* slot : slots_) *slot->tensor = tensor;
}

void FsdpParam::init_dtypes(const MixedPrecisionPolicy& policy) { param_dtype_ = policy.param_dtype.value_or(stored_dtype()); }

void FsdpParam::materialize(at::Device device, at::ScalarType dtype) {
  if (!sharded_padded_.is_meta()) return;
  set_sharded_param(at::zeros(sharded_padded_.sizes(), sharded_padded_.options().device(device).dtype(dtype)));
}

at::Tensor& FsdpParam::alloc_gathered() {
  const std::int64_t numel = chunk_numel() * shard_size_;
  if (!gathered_.defined()) {
    gathered_ = at::empty({numel}, sharded_padded_.options().dtype(param_dtype_));
    const at::AutoDispatchBelowADInplaceOrView below;
    unsharded_param_ = gathered_.as_strided(shape_, c10::contiguous_strides(shape_)).variable_data();
    unsharded_param_.set_requires_grad(requires_grad_);
  } else {
    resize_storage(gathered_, numel * static_cast<std::int64_t>(gathered_.element_size()));
  }
  return gathered_;
}

void FsdpParam::to_unsharded() {
  point_slots_at(unsharded_param_);
  unsharded_ = true;
}

void FsdpParam::to_sharded() {
  point_slots_at(sharded_param_);
  if (gathered_.defined()) resize_storage(gathered_, 0);
  unsharded_ = false;
}

at::Tensor FsdpParam::take_unsharded_grad() {
  if (!unsharded_param_.defined()) return {};
  at::Tensor grad = unsharded_param_.grad();
  unsharded_param_.mutable_grad().reset();
  return grad;
}

void FsdpParam::accumulate_sharded_grad(const at::Tensor& chunk) {
  auto mine = chunk.narrow(0, 0, spec_.local_shape[0] * row_numel_).view(spec_.local_shape).to(stored_dtype());
  auto& grad = sharded_param_.mutable_grad();
  if (grad.defined()) {
    grad.add_(mine);
  } else {
    grad = std::move(mine);
  }
}

}  // namespace titan::fsdp
