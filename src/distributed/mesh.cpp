#include "distributed/mesh.h"

#include <numeric>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace titan::dist {
namespace {

std::string describe(const std::vector<int>& shape, const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < shape.size(); ++i)
    parts.push_back((i < names.size() ? names[i] : "?") + "=" + std::to_string(shape[i]));
  return std::string("(").append(join(parts, ", ")).append(")");
}

std::vector<int> unravel(int index, const std::vector<int>& shape) {
  std::vector<int> coordinate(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    coordinate[d] = index % shape[d];
    index /= shape[d];
  }
  return coordinate;
}

int ravel(const std::vector<int>& coordinate, const std::vector<int>& shape) {
  int index = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + coordinate[d];
  return index;
}

int product(const std::vector<int>& shape) {
  return std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>());
}

}  // namespace

DeviceMesh DeviceMesh::init(World& world, std::vector<int> shape, std::vector<std::string> dim_names) {
  if (shape.size() != dim_names.size()) {
    throw DistError("a mesh of " + std::to_string(shape.size()) + " dims needs as many names, got " +
                    std::to_string(dim_names.size()));
  }
  for (std::size_t i = 0; i < dim_names.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (dim_names[i] == dim_names[j]) throw DistError("mesh dim '" + dim_names[i] + "' is named twice");
    }
  }
  if (product(shape) != world.size()) {
    throw DistError("mesh " + describe(shape, dim_names) + " has " + std::to_string(product(shape)) + " places for " +
                    std::to_string(world.size()) + " ranks");
  }
  DeviceMesh mesh;
  mesh.world_ = &world;
  mesh.shape_ = std::move(shape);
  mesh.names_ = std::move(dim_names);
  mesh.ranks_.resize(static_cast<std::size_t>(world.size()));
  std::iota(mesh.ranks_.begin(), mesh.ranks_.end(), 0);
  mesh.coordinate_ = unravel(world.rank(), mesh.shape_);
  mesh.root_ = std::make_shared<const Root>(Root{mesh.shape_, mesh.coordinate_});
  for (int d = 0; d < mesh.ndim(); ++d) {
    mesh.groups_.push_back(world.make_group(mesh.names_[d], mesh.ranks_along({d})));
    mesh.root_dims_.push_back({d});
  }
  return mesh;
}

int DeviceMesh::size() const { return product(shape_); }
int DeviceMesh::size(const std::string& dim) const { return shape_[dim_index(dim)]; }
bool DeviceMesh::has(const std::string& dim) const {
  return std::find(names_.begin(), names_.end(), dim) != names_.end();
}
int DeviceMesh::local_rank(const std::string& dim) const { return coordinate_[dim_index(dim)]; }
std::vector<int> DeviceMesh::coordinate_of(int place) const { return unravel(place, shape_); }
ProcessGroup& DeviceMesh::group(const std::string& dim) const { return *groups_[dim_index(dim)]; }

ProcessGroup& DeviceMesh::group() const {
  if (ndim() != 1)
    throw DistError("mesh " + describe(shape_, names_) + " has several dims: name the one whose group you want");
  return *groups_[0];
}

std::shared_ptr<ProcessGroup> DeviceMesh::neighbours(const std::string& dim, int size) const {
  const auto& all = group(dim).ranks();
  if (size < 1 || all.size() % static_cast<std::size_t>(size) != 0) {
    throw DistError("mesh dim '" + dim + "' has " + std::to_string(all.size()) + " ranks, which blocks of " +
                    std::to_string(size) + " do not divide");
  }
  const auto first = all.begin() + local_rank(dim) / size * size;
  return world_->make_group(dim + "_neighbours", std::vector<int>(first, first + size));
}

int DeviceMesh::dim_index(const std::string& dim) const {
  const auto found = std::find(names_.begin(), names_.end(), dim);
  if (found == names_.end()) throw DistError("mesh " + describe(shape_, names_) + " has no dim '" + dim + "'");
  return static_cast<int>(found - names_.begin());
}

std::vector<int> DeviceMesh::ranks_along(const std::vector<int>& dims) const {
  std::vector<int> sub_shape;
  for (const int d : dims) sub_shape.push_back(shape_[d]);
  std::vector<int> out;
  for (int i = 0; i < product(sub_shape); ++i) {
    const auto sub = unravel(i, sub_shape);
    auto coordinate = coordinate_;
    for (std::size_t k = 0; k < dims.size(); ++k) coordinate[dims[k]] = sub[k];
    out.push_back(ranks_[ravel(coordinate, shape_)]);
  }
  return out;
}

DeviceMesh DeviceMesh::slice(const std::vector<std::string>& dims) const {
  std::vector<int> indices;
  for (const auto& dim : dims) {
    indices.push_back(dim_index(dim));
    if (indices.size() > 1 && indices[indices.size() - 2] >= indices.back()) {
      throw DistError("mesh " + describe(shape_, names_) + " cannot be sliced as (" + join(dims, ", ") +
                      "): keep the mesh's order of dims");
    }
  }
  DeviceMesh mesh;
  mesh.world_ = world_;
  mesh.root_ = root_;
  mesh.ranks_ = ranks_along(indices);
  for (const int d : indices) {
    mesh.shape_.push_back(shape_[d]);
    mesh.names_.push_back(names_[d]);
    mesh.coordinate_.push_back(coordinate_[d]);
    mesh.groups_.push_back(groups_[d]);
    mesh.root_dims_.push_back(root_dims_[d]);
  }
  return mesh;
}

DeviceMesh DeviceMesh::flatten(const std::vector<std::string>& dims, const std::string& name) const {
  DeviceMesh mesh = slice(dims);
  const int position = ravel(mesh.coordinate_, mesh.shape_);
  mesh.shape_ = {product(mesh.shape_)};
  mesh.names_ = {name};
  mesh.coordinate_ = {position};
  mesh.groups_ = {world_->make_group(name, mesh.ranks_)};
  std::vector<int> stands_for;
  for (const auto& part : mesh.root_dims_) stands_for.insert(stands_for.end(), part.begin(), part.end());
  mesh.root_dims_ = {std::move(stands_for)};
  return mesh;
}

int DeviceMesh::rank_at(const std::vector<int>& coordinate) const {
  auto at_root = root_->coordinate;
  for (std::size_t d = 0; d < coordinate.size(); ++d) {
    std::vector<int> sizes;
    for (const int r : root_dims_[d]) sizes.push_back(root_->shape[r]);
    const auto parts = unravel(coordinate[d], sizes);
    for (std::size_t k = 0; k < parts.size(); ++k) at_root[root_dims_[d][k]] = parts[k];
  }
  return ravel(at_root, root_->shape);
}

DeviceMesh DeviceMesh::concatenate(const DeviceMesh& outer, const DeviceMesh& inner) {
  const std::string both =
      "mesh " + describe(outer.shape_, outer.names_) + " and mesh " + describe(inner.shape_, inner.names_);
  if (!outer.root_ || outer.root_ != inner.root_) {
    throw DistError(both + " have no common parent: make one mesh with the dims of both and slice them from it");
  }
  std::set<int> taken;
  for (const auto& dims : outer.root_dims_) taken.insert(dims.begin(), dims.end());
  DeviceMesh mesh = outer;
  for (std::size_t d = 0; d < inner.shape_.size(); ++d) {
    for (const int r : inner.root_dims_[d]) {
      if (!taken.insert(r).second)
        throw DistError(both + " overlap: '" + inner.names_[d] + "' lies along a dim of the other");
    }
    if (outer.has(inner.names_[d])) throw DistError(both + " both have a dim '" + inner.names_[d] + "'");
    mesh.shape_.push_back(inner.shape_[d]);
    mesh.names_.push_back(inner.names_[d]);
    mesh.coordinate_.push_back(inner.coordinate_[d]);
    mesh.groups_.push_back(inner.groups_[d]);
    mesh.root_dims_.push_back(inner.root_dims_[d]);
  }
  mesh.ranks_.clear();
  for (int i = 0; i < mesh.size(); ++i) mesh.ranks_.push_back(mesh.rank_at(unravel(i, mesh.shape_)));
  return mesh;
}

}  // namespace titan::dist
