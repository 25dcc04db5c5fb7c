#include "distributed/tensor/dtensor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "distributed/tensor/dtensor_check.h"

namespace titan::dist {
namespace {

ReduceOp op_of(PartialOp op) {
  switch (op) {
    case PartialOp::kSum:
    case PartialOp::kAvg:
      return ReduceOp::kSum;  // an average is divided afterwards
    case PartialOp::kMax:
      return ReduceOp::kMax;
    case PartialOp::kMin:
      return ReduceOp::kMin;
  }
  throw InternalError("unknown operation of a Partial");
}

// Pads `part` with zeros to `size` elements along `dim`.
at::Tensor padded(const at::Tensor& part, std::int64_t dim, std::int64_t size) {
  if (part.size(dim) == size) return part.contiguous();
  auto shape = part.sizes().vec();
  shape[dim] = size;
  auto out = at::zeros(shape, part.options());
  out.narrow(dim, 0, part.size(dim)).copy_(part);
  return out;
}

// Redistributes one rank's tensor to other placements, one mesh axis at a time.
class Move {
 public:
  Move(const DTensor& from, const std::vector<Placement>& target)
      : mesh_(from.mesh()), shape_(from.shape()), target_(target), local_(from.to_local().detach()) {
    for (const auto& placement : from.placements()) {
      const auto* partial = std::get_if<Partial>(&placement);
      partial_.push_back(partial ? std::make_optional(partial->op) : std::nullopt);
    }
    for (std::int64_t d = 0; d < ndim(); ++d) {
      cuts_.push_back(split_order(from.placements(), d));
      target_cuts_.push_back(split_order(target_, d));
    }
  }

  at::Tensor run() {
    for (std::int64_t d = 0; d < ndim(); ++d) {
      while (!is_prefix(d)) undo_last_cut(d);
    }
    for (std::int64_t d = 0; d < ndim(); ++d) {
      while (cuts_[d].size() < target_cuts_[d].size()) cut(d, target_cuts_[d][cuts_[d].size()]);
    }
    for (int m = 0; m < mesh_.num_axes(); ++m) {
      if (partial_[m] && !std::holds_alternative<Partial>(target_[m])) all_reduce(m);
    }
    return local_;
  }

 private:
  std::int64_t ndim() const { return static_cast<std::int64_t>(shape_.size()); }
  ProcessGroup& group(int mesh_axis) const { return mesh_.group(mesh_.axis_names()[mesh_axis]); }

  bool is_prefix(std::int64_t d) const {
    return cuts_[d].size() <= target_cuts_[d].size() &&
           std::equal(cuts_[d].begin(), cuts_[d].end(), target_cuts_[d].begin());
  }

  // Returns the elements along `d` that the cuts so far leave to this rank.
  std::int64_t extent(std::int64_t d) const {
    std::int64_t size = shape_[d];
    for (const int m : cuts_[d]) size = chunk_of(size, mesh_.shape()[m], mesh_.coordinate()[m]).count;
    return size;
  }

  void undo_last_cut(std::int64_t d) {
    auto& peers = group(cuts_[d].back());
    cuts_[d].pop_back();
    const std::int64_t size = extent(d);
    const auto mine = padded(local_, d, chunk_of(size, peers.size(), 0).count);
    auto shape = mine.sizes().vec();
    shape.insert(shape.begin(), peers.size());
    const auto all = at::empty(shape, mine.options());
    if (all.numel() > 0) peers.all_gather(all.view(-1), mine.view(-1)).wait();
    std::vector<at::Tensor> parts;
    for (int r = 0; r < peers.size(); ++r) parts.push_back(all[r].narrow(d, 0, chunk_of(size, peers.size(), r).count));
    local_ = at::cat(parts, d);
  }

  void cut(std::int64_t d, int mesh_axis) {
    auto& peers = group(mesh_axis);
    const std::int64_t size = extent(d);
    cuts_[d].push_back(mesh_axis);
    if (partial_[mesh_axis]) {
      reduce_scatter(d, mesh_axis, size);
    } else {
      const auto chunk = chunk_of(size, peers.size(), peers.rank());
      local_ = local_.narrow(d, chunk.first, chunk.count);
    }
  }

  void reduce_scatter(std::int64_t d, int mesh_axis, std::int64_t size) {
    auto& peers = group(mesh_axis);
    const std::int64_t chunk = chunk_of(size, peers.size(), 0).count;
    std::vector<at::Tensor> parts;
    for (int r = 0; r < peers.size(); ++r) {
      const auto theirs = chunk_of(size, peers.size(), r);
      parts.push_back(padded(local_.narrow(d, theirs.first, theirs.count), d, chunk));
    }
    const auto all = at::stack(parts);
    auto mine = at::empty_like(parts.front());
    const auto op = *std::exchange(partial_[mesh_axis], std::nullopt);
    if (all.numel() > 0) peers.reduce_scatter(mine.view(-1), all.view(-1), op_of(op)).wait();
    local_ = finished(mine, op, peers.size()).narrow(d, 0, chunk_of(size, peers.size(), peers.rank()).count);
  }

  void all_reduce(int mesh_axis) {
    auto& peers = group(mesh_axis);
    auto sum = local_.clone(at::MemoryFormat::Contiguous);
    const auto op = *std::exchange(partial_[mesh_axis], std::nullopt);
    if (sum.numel() > 0) peers.all_reduce(sum, op_of(op)).wait();
    local_ = finished(sum, op, peers.size());
  }

  at::Tensor finished(at::Tensor reduced, PartialOp op, int num_ranks) const {
    return op == PartialOp::kAvg ? reduced.div_(num_ranks) : reduced;
  }

  const DeviceMesh& mesh_;
  const std::vector<std::int64_t>& shape_;
  const std::vector<Placement>& target_;
  at::Tensor local_;
  std::vector<std::optional<PartialOp>> partial_;  // per mesh axis: the reduction still to be done
  std::vector<std::vector<int>> cuts_;             // per tensor dim: the mesh axes that cut it, in order
  std::vector<std::vector<int>> target_cuts_;
};

void check_target(const DTensor& tensor, const std::vector<Placement>& target) {
  for (std::size_t m = 0; m < target.size(); ++m) {
    const auto& now = tensor.placements()[m];
    if (std::holds_alternative<Partial>(target[m]) && now != target[m]) {
      throw DistError(tensor.text() + " cannot be redistributed to " + placements_text(target) +
                      ": a Partial comes from computation only");
    }
    const auto* partial = std::get_if<Partial>(&now);
    if (partial && partial->op == PartialOp::kAvg && !tensor.to_local().is_floating_point())
      throw DistError(tensor.text() + ": integers have no average");
  }
}

std::vector<std::int64_t> even_global_shape(const at::Tensor& local, const DeviceMesh& mesh,
                                            const std::vector<Placement>& placements) {
  auto shape = local.sizes().vec();
  for (std::size_t m = 0; m < std::min(placements.size(), mesh.shape().size()); ++m) {
    if (auto d = shard_dim(placements[m])) {
      if (*d < 0) *d += local.dim();
      if (*d >= 0 && *d < local.dim()) shape[*d] *= mesh.shape()[m];  // else Sharding::of names it
    }
  }
  return shape;
}

}  // namespace

DTensor::DTensor(at::Tensor local, Sharding sharding) : local_(local.detach()), sharding_(std::move(sharding)) {
  if (local_.sizes().vec() == sharding_.spec.local_shape) return;
  std::vector<std::string> place;
  for (int m = 0; m < mesh().num_axes(); ++m)
    place.push_back(mesh().axis_names()[m] + " " + std::to_string(mesh().coordinate()[m]));
  throw DistError("rank at (" + join(place, ", ") + "): the local tensor has shape " + shape_text(local_.sizes()) +
                  ", but the piece here of " + shape_text(shape()) + " under " + placements_text(placements()) +
                  " has shape " + shape_text(spec().local_shape));
}

DTensor DTensor::from_local(at::Tensor local, const DeviceMesh& mesh, std::vector<Placement> placements,
                            const FromLocalOptions& options) {
  auto shape = options.global_shape ? *options.global_shape : even_global_shape(local, mesh, placements);
  auto sharding = Sharding::of(shape, mesh, std::move(placements));
  // Before this rank checks its own shape: a rank that stops early would leave the others waiting.
  if (options.run_check) check_ranks_agree(local.detach(), sharding);
  return {std::move(local), std::move(sharding)};
}

DTensor DTensor::distribute(const at::Tensor& whole, const DeviceMesh& mesh, std::vector<Placement> placements) {
  auto sharding = Sharding::of(whole.sizes().vec(), mesh, std::move(placements));
  for (const auto& placement : sharding.placements) {
    if (std::holds_alternative<Partial>(placement)) {
      throw DistError("a whole tensor cannot be distributed as " + placements_text(sharding.placements) +
                      ": a Partial comes from computation only");
    }
  }
  auto piece = whole.detach();
  for (std::int64_t d = 0; d < whole.dim(); ++d) {
    const std::int64_t count = sharding.spec.local_shape[d];
    piece = piece.narrow(d, std::min(sharding.spec.offset[d], whole.size(d) - count), count);
  }
  return {piece.clone(at::MemoryFormat::Contiguous), std::move(sharding)};
}

at::Tensor DTensor::full_tensor() const {
  return redistribute(std::vector<Placement>(placements().size(), Replicate{})).local_;
}

DTensor DTensor::redistribute(std::vector<Placement> placements) const {
  const at::NoGradGuard no_grad;
  auto target = Sharding::of(shape(), mesh(), std::move(placements));
  check_target(*this, target.placements);
  auto local = Move(*this, target.placements).run();
  // A view of a larger tensor would keep all of its memory alive.
  if (local.storage().nbytes() > local.nbytes()) local = local.clone();
  return {local.contiguous(), std::move(target)};
}

std::string DTensor::text() const {
  std::vector<std::string> axes;
  for (int m = 0; m < mesh().num_axes(); ++m)
    axes.push_back(mesh().axis_names()[m] + "=" + std::to_string(mesh().shape()[m]));
  return "DTensor " + shape_text(shape()) + " " + c10::toString(local_.scalar_type()) + " over (" + join(axes, ", ") +
         "), " + placements_text(placements());
}

}  // namespace titan::dist
