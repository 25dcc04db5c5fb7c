#include "optim/clip_grad_norm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "kernels/cpu/parallel.h"

namespace titan::optim {
namespace {

using Groups = std::vector<dist::ProcessGroup*>;

// Gradients (by index) whose norms are reduced together.
struct Batch {
  Groups groups;
  std::vector<std::size_t> members;
};

// Groups the gradients by their groups, in the order of first use, which is the same on every rank.
std::vector<Batch> batches_of(const std::vector<ShardedGrad>& grads) {
  std::vector<Batch> batches;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    Groups groups;
    for (auto* group : grads[i].sharded_over) {
      if (group->size() > 1) groups.push_back(group);
    }
    if (groups.empty()) continue;
    auto batch = std::find_if(batches.begin(), batches.end(), [&](const Batch& b) { return b.groups == groups; });
    if (batch == batches.end()) batch = batches.insert(batch, {std::move(groups), {}});
    batch->members.push_back(i);
  }
  return batches;
}

bool has_elements(const at::Tensor& grad) { return grad.defined() && grad.numel() > 0; }

at::Device device_of(const std::vector<ShardedGrad>& grads) {
  for (const auto& part : grads) {
    if (part.grad.defined()) return part.grad.device();
  }
  return at::kCPU;
}

// ATen computes the 2-norm of a float32 tensor on the host on a single thread.
bool is_on_one_thread(const at::Tensor& part) {
  return part.is_cpu() && part.scalar_type() == at::kFloat && part.is_contiguous();
}

// at::_foreach_norm, equal to the bit, but on as many tensors in parallel as there are threads, the largest first.
std::vector<at::Tensor> foreach_norm(const std::vector<at::Tensor>& parts, double norm_type) {
  if (norm_type != 2 || !std::ranges::all_of(parts, is_on_one_thread)) return at::_foreach_norm(parts, norm_type);
  std::vector<std::size_t> by_size(parts.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::ranges::stable_sort(by_size, std::greater<>(), [&](std::size_t i) { return parts[i].numel(); });
  std::vector<at::Tensor> norms(parts.size());
  std::atomic<std::size_t> next = 0;
  kernels::parallel_for(0, static_cast<std::int64_t>(parts.size()), /*grain=*/1, [&](std::int64_t, std::int64_t) {
    const at::NoGradGuard no_grad;  // per thread
    for (std::size_t taken = next++; taken < parts.size(); taken = next++)
      norms[by_size[taken]] = at::linalg_vector_norm(parts[by_size[taken]], norm_type);
  });
  return norms;
}

// [grads], float32: the norm of each part, computed in the part's dtype. A part without elements has the neutral norm.
at::Tensor local_norms(const std::vector<ShardedGrad>& grads, double norm_type) {
  const auto device = device_of(grads);
  std::vector<at::Tensor> parts;
  for (const auto& part : grads) {
    if (has_elements(part.grad)) parts.push_back(part.grad);
  }
  std::vector<at::Tensor> computed;
  if (!parts.empty()) computed = foreach_norm(parts, norm_type);
  const auto neutral = at::full({}, norm_type < 0 ? std::numeric_limits<double>::infinity() : 0.0,
                                at::TensorOptions().dtype(at::kFloat).device(device));
  std::vector<at::Tensor> norms;
  std::size_t next = 0;
  for (const auto& part : grads)
    norms.push_back(has_elements(part.grad) ? computed[next++].to(device, at::kFloat) : neutral);
  return at::stack(norms);
}

// Reduces the norms of the parts to those of the full gradients.
at::Tensor reduce(at::Tensor norms, const Groups& groups, double norm_type) {
  const auto all_reduce = [&](dist::ReduceOp op) {
    for (auto* group : groups) group->all_reduce(norms, op).wait();
  };
  if (std::isinf(norm_type)) {
    // Backends differ in the maximum of NaN and a number, so "is NaN" is reduced beside the norms.
    const double sign = norm_type > 0 ? 1.0 : -1.0;
    const auto is_nan = norms.isnan();
    const auto num = norms.numel();
    norms = at::cat({at::where(is_nan, -std::numeric_limits<float>::infinity(), norms * sign), is_nan.to(at::kFloat)});
    all_reduce(dist::ReduceOp::kMax);
    const auto nan = at::full_like(is_nan, std::numeric_limits<float>::quiet_NaN(), at::kFloat);
    norms = at::where(norms.slice(0, num).to(at::kBool), nan, norms.slice(0, 0, num) * sign);
  } else if (norm_type == 0 || norm_type == 1) {
    all_reduce(dist::ReduceOp::kSum);
  } else if (norm_type == 2) {
    norms = norms.square();
    all_reduce(dist::ReduceOp::kSum);
    norms = norms.sqrt();
  } else {
    norms = norms.pow(norm_type);
    all_reduce(dist::ReduceOp::kSum);
    norms = norms.pow(1.0 / norm_type);
  }
  return norms;
}

void throw_if_nonfinite(const at::Tensor& total, double norm_type) {
  const auto value = total.item<double>();
  if (std::isfinite(value)) return;
  throw Error("[optim] the total norm of order " + std::to_string(norm_type) + " of the gradients is " +
                  std::to_string(value) +
                  ": they cannot be clipped. Set error_if_nonfinite = false to continue without clipping",
              kExitFailed);
}

}  // namespace

std::vector<dist::ProcessGroup*> groups_that_cut(const std::optional<dist::Sharding>& sharding) {
  std::vector<dist::ProcessGroup*> groups;
  if (!sharding) return groups;
  for (int axis = 0; axis < sharding->mesh.num_axes(); ++axis) {
    if (dist::shard_dim(sharding->placements[axis]))
      groups.push_back(&sharding->mesh.group(sharding->mesh.axis_names()[axis]));
  }
  return groups;
}

namespace {

// [grads], float32: the norm of each full gradient.
at::Tensor norms_of_wholes(const std::vector<ShardedGrad>& grads, double norm_type) {
  if (grads.empty()) return at::zeros({0});
  at::Tensor norms = local_norms(grads, norm_type);
  const auto batches = batches_of(grads);
  if (batches.size() == 1 && batches[0].members.size() == grads.size()) {
    norms = reduce(std::move(norms), batches[0].groups, norm_type);
  } else if (!batches.empty()) {
    auto each = norms.unbind();
    for (const auto& [groups, members] : batches) {
      std::vector<at::Tensor> batch;
      for (const auto i : members) batch.push_back(each[i]);
      const auto reduced = reduce(at::stack(batch), groups, norm_type).unbind();
      for (std::size_t k = 0; k < members.size(); ++k) each[members[k]] = reduced[k];
    }
    norms = at::stack(each);
  }
  return norms;
}

at::Tensor norm_of_norms(const at::Tensor& norms, double norm_type, bool error_if_nonfinite) {
  if (norms.numel() == 0) return at::zeros({});
  const auto total = at::linalg_vector_norm(norms, norm_type);
  if (error_if_nonfinite) throw_if_nonfinite(total, norm_type);
  return total;
}

}  // namespace

at::Tensor total_norm(const std::vector<ShardedGrad>& grads, double norm_type, bool error_if_nonfinite) {
  const at::NoGradGuard no_grad;
  return norm_of_norms(norms_of_wholes(grads, norm_type), norm_type, error_if_nonfinite);
}

Clip clip_factor(const std::vector<ShardedGrad>& grads, double max_norm, double norm_type, bool error_if_nonfinite) {
  const at::NoGradGuard no_grad;
  const auto each = norms_of_wholes(grads, norm_type);
  const auto norm = norm_of_norms(each, norm_type, error_if_nonfinite);
  return {norm, at::clamp_max(max_norm / (norm + 1e-6), 1.0), each};
}

Clip clip_factor_over(const Clip& own, const ModelParts& parts, double max_norm) {
  if (parts.group.size() == 1) return own;
  const at::NoGradGuard no_grad;
  auto norm = own.norm;
  if (parts.owned.defined()) norm = at::linalg_vector_norm(at::where(parts.owned > 0, own.each, 0.0));
  norm = reduce(norm, {&parts.group}, 2.0);
  return {norm, at::clamp_max(max_norm / (norm + 1e-6), 1.0), own.each};
}

void scale_grads(const std::vector<at::Tensor>& grads, const at::Tensor& factor) {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Device, std::vector<at::Tensor>>> by_device;
  for (const auto& grad : grads) {
    if (!has_elements(grad)) continue;
    const auto device = grad.device();
    auto found = std::find_if(by_device.begin(), by_device.end(), [&](const auto& d) { return d.first == device; });
    if (found == by_device.end()) found = by_device.insert(found, {device, {}});
    found->second.push_back(grad);
  }
  for (const auto& [device, parts] : by_device) at::_foreach_mul_(parts, factor.to(device));
}

at::Tensor clip_grad_norm(const std::vector<ShardedGrad>& grads, double max_norm, double norm_type,
                          bool error_if_nonfinite) {
  const Clip clip = clip_factor(grads, max_norm, norm_type, error_if_nonfinite);
  std::vector<at::Tensor> parts;
  for (const auto& part : grads) parts.push_back(part.grad);
  scale_grads(parts, clip.factor);
  return clip.norm;
}

}  // namespace titan::optim
