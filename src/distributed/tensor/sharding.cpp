#include "distributed/tensor/sharding.h"

#include <algorithm>

#include "base/error.h"

namespace titan::dist {
namespace {

std::string where(const std::vector<std::int64_t>& shape, const std::vector<Placement>& placements) {
  return "a tensor with shape " + shape_text(shape) + " and placements " + placements_text(placements) + ": ";
}

void resolve_dim(std::int64_t& dim, std::int64_t ndim, const std::string& tensor) {
  const std::int64_t resolved = dim < 0 ? dim + ndim : dim;
  if (resolved < 0 || resolved >= ndim) throw DistError(tensor + "it has no dim " + std::to_string(dim) + " to shard");
  dim = resolved;
}

// Returns the number of pieces into which the mesh axes right of `mesh_axis` cut `tensor_dim`.
std::int64_t pieces_to_the_right(const DeviceMesh& mesh, const std::vector<Placement>& placements,
                                 std::size_t mesh_axis, std::int64_t tensor_dim) {
  std::int64_t pieces = 1;
  for (std::size_t m = mesh_axis + 1; m < placements.size(); ++m) {
    if (shard_dim(placements[m]) == tensor_dim) pieces *= mesh.shape()[m];
  }
  return pieces;
}

bool is_linear(PartialOp op) { return op == PartialOp::kSum || op == PartialOp::kAvg; }

void check_partials(const std::vector<Placement>& placements, const std::string& tensor) {
  const Partial* first = nullptr;
  for (const auto& placement : placements) {
    const auto* partial = std::get_if<Partial>(&placement);
    if (!partial) continue;
    if (!first) first = partial;
    if (first->op == partial->op || (is_linear(first->op) && is_linear(partial->op))) continue;
    throw DistError(tensor + "the result of " + placement_text(*first) + " and " + placement_text(*partial) +
                    " depends on which is reduced first; reduce one before the other");
  }
}

}  // namespace

Chunk chunk_of(std::int64_t size, std::int64_t chunks, std::int64_t index) {
  const std::int64_t chunk = (size + chunks - 1) / chunks;
  const std::int64_t first = std::min(size, index * chunk);
  return {first, std::min(size - first, chunk)};
}

std::vector<int> split_order(const std::vector<Placement>& placements, std::int64_t tensor_dim) {
  std::vector<int> order;
  for (int m = static_cast<int>(placements.size()) - 1; m >= 0; --m) {
    if (shard_dim(placements[m]) != tensor_dim) continue;
    const bool cuts_last = std::holds_alternative<StridedShard>(placements[m]);
    order.insert(cuts_last ? order.end() : order.begin(), m);
  }
  return order;
}

ShardSpec box_of(const std::vector<std::int64_t>& global_shape, const std::vector<int>& mesh_shape,
                 const std::vector<int>& coordinate, const std::vector<Placement>& placements) {
  auto spec = ShardSpec::replicated(global_shape);
  for (std::size_t d = 0; d < global_shape.size(); ++d) {
    for (const int m : split_order(placements, static_cast<std::int64_t>(d))) {
      const auto chunk = chunk_of(spec.local_shape[d], mesh_shape[m], coordinate[m]);
      spec.offset[d] += chunk.first;
      spec.local_shape[d] = chunk.count;
    }
    if (spec.local_shape[d] == 0) spec.offset[d] = global_shape[d];
  }
  return spec;
}

Sharding Sharding::of(const std::vector<std::int64_t>& global_shape, const DeviceMesh& mesh,
                      std::vector<Placement> placements) {
  const std::string tensor = where(global_shape, placements);
  if (static_cast<int>(placements.size()) != mesh.num_axes()) {
    throw DistError(tensor + "a mesh with " + std::to_string(mesh.num_axes()) + " axes needs as many placements");
  }
  const auto ndim = static_cast<std::int64_t>(global_shape.size());
  for (auto& placement : placements) {
    if (auto* shard = std::get_if<Shard>(&placement)) resolve_dim(shard->dim, ndim, tensor);
    if (auto* strided = std::get_if<StridedShard>(&placement)) resolve_dim(strided->dim, ndim, tensor);
  }
  for (std::size_t m = 0; m < placements.size(); ++m) {
    const auto* strided = std::get_if<StridedShard>(&placements[m]);
    if (!strided) continue;
    const auto pieces = pieces_to_the_right(mesh, placements, m, strided->dim);
    if (strided->split_factor == pieces) continue;
    throw DistError(tensor + "the mesh axes right of '" + mesh.axis_names()[m] + "' cut dim " +
                    std::to_string(strided->dim) + " into " + std::to_string(pieces) +
                    " pieces, which split_factor must say");
  }
  check_partials(placements, tensor);
  auto spec = box_of(global_shape, mesh.shape(), mesh.coordinate(), placements);
  return {mesh, std::move(placements), std::move(spec)};
}

Sharding Sharding::cut_again(const DeviceMesh& outer, std::int64_t dim) const {
  std::int64_t pieces = 1;
  for (std::size_t m = 0; m < placements.size(); ++m) {
    if (shard_dim(placements[m]) == dim) pieces *= mesh.shape()[m];
  }
  std::vector<Placement> all(outer.num_axes() - 1, Replicate{});
  all.push_back(pieces > 1 ? Placement(StridedShard{dim, pieces}) : Placement(Shard{dim}));
  all.insert(all.end(), placements.begin(), placements.end());
  return of(spec.global_shape, DeviceMesh::concatenate(outer, mesh), std::move(all));
}

}  // namespace titan::dist
