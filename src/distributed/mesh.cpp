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

DeviceMesh DeviceMesh::init(World& world, std::vector<int> shape, std::vector<std::string> axis_names) {
  DeviceMesh mesh = layout(world, std::move(shape), std::move(axis_names));
  mesh.make_groups();
  return mesh;
}

DeviceMesh DeviceMesh::layout(World& world, std::vector<int> shape, std::vector<std::string> axis_names) {
  if (shape.size() != axis_names.size()) {
    throw DistError("a mesh of " + std::to_string(shape.size()) + " axes needs as many names, got " +
                    std::to_string(axis_names.size()));
  }
  for (std::size_t i = 0; i < axis_names.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (axis_names[i] == axis_names[j]) throw DistError("mesh axis '" + axis_names[i] + "' is named twice");
    }
  }
  if (product(shape) != world.size()) {
    throw DistError("mesh " + describe(shape, axis_names) + " has " + std::to_string(product(shape)) + " places for " +
                    std::to_string(world.size()) + " ranks");
  }
  DeviceMesh mesh;
  mesh.world_ = &world;
  mesh.shape_ = std::move(shape);
  mesh.names_ = std::move(axis_names);
  mesh.ranks_.resize(static_cast<std::size_t>(world.size()));
  std::iota(mesh.ranks_.begin(), mesh.ranks_.end(), 0);
  mesh.coordinate_ = unravel(world.rank(), mesh.shape_);
  mesh.root_ = std::make_shared<const Root>(Root{mesh.shape_, mesh.coordinate_});
  mesh.groups_.resize(mesh.shape_.size());
  for (int d = 0; d < mesh.num_axes(); ++d) mesh.root_axes_.push_back({d});
  return mesh;
}

void DeviceMesh::make_groups() {
  for (int d = 0; d < num_axes(); ++d) {
    if (!groups_[d]) groups_[d] = world_->make_group(names_[d], ranks_along({d}));
  }
}

c10::Device DeviceMesh::device() const {
  TITAN_CHECK(world_, "an empty DeviceMesh has no device; make one with DeviceMesh::init()");
  return world_->device();
}

int DeviceMesh::size() const { return product(shape_); }
int DeviceMesh::size(const std::string& axis) const { return shape_[axis_index(axis)]; }
bool DeviceMesh::has(const std::string& axis) const {
  return std::find(names_.begin(), names_.end(), axis) != names_.end();
}
int DeviceMesh::local_rank(const std::string& axis) const { return coordinate_[axis_index(axis)]; }
std::vector<int> DeviceMesh::coordinate_of(int place) const { return unravel(place, shape_); }

ProcessGroup& DeviceMesh::group_of(int axis) const {
  TITAN_CHECK(groups_[axis], "axis '" + names_[axis] + "' of a mesh layout has no group: slice it first");
  return *groups_[axis];
}

ProcessGroup& DeviceMesh::group(const std::string& axis) const { return group_of(axis_index(axis)); }

ProcessGroup& DeviceMesh::group() const {
  if (num_axes() != 1)
    throw DistError("mesh " + describe(shape_, names_) + " has several axes: name the one whose group you want");
  return group_of(0);
}

std::shared_ptr<ProcessGroup> DeviceMesh::neighbours(const std::string& axis, int size) const {
  const auto& all = group(axis).ranks();
  if (size < 1 || all.size() % static_cast<std::size_t>(size) != 0) {
    throw DistError("mesh axis '" + axis + "' has " + std::to_string(all.size()) + " ranks, which blocks of " +
                    std::to_string(size) + " do not divide");
  }
  const auto first = all.begin() + local_rank(axis) / size * size;
  auto block = world_->make_group(axis + "_neighbours", std::vector<int>(first, first + size));
  block->connect_accelerator();
  return block;
}

void DeviceMesh::connect_accelerators() const {
  for (int axis = 0; axis < num_axes(); ++axis) group_of(axis).connect_accelerator();
}

int DeviceMesh::axis_index(const std::string& axis) const {
  const auto found = std::find(names_.begin(), names_.end(), axis);
  if (found == names_.end()) throw DistError("mesh " + describe(shape_, names_) + " has no axis '" + axis + "'");
  return static_cast<int>(found - names_.begin());
}

std::vector<int> DeviceMesh::ranks_along(const std::vector<int>& axes) const {
  std::vector<int> sub_shape;
  for (const int d : axes) sub_shape.push_back(shape_[d]);
  std::vector<int> out;
  for (int i = 0; i < product(sub_shape); ++i) {
    const auto sub = unravel(i, sub_shape);
    auto coordinate = coordinate_;
    for (std::size_t k = 0; k < axes.size(); ++k) coordinate[axes[k]] = sub[k];
    out.push_back(ranks_[ravel(coordinate, shape_)]);
  }
  return out;
}

DeviceMesh DeviceMesh::slice(const std::vector<std::string>& axes) const {
  DeviceMesh mesh = cut(axes);
  mesh.make_groups();
  return mesh;
}

DeviceMesh DeviceMesh::cut(const std::vector<std::string>& axes) const {
  std::vector<int> indices;
  for (const auto& axis : axes) {
    indices.push_back(axis_index(axis));
    if (indices.size() > 1 && indices[indices.size() - 2] >= indices.back()) {
      throw DistError("mesh " + describe(shape_, names_) + " cannot be sliced as (" + join(axes, ", ") +
                      "): keep the mesh's order of axes");
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
    mesh.root_axes_.push_back(root_axes_[d]);
  }
  return mesh;
}

DeviceMesh DeviceMesh::flatten(const std::vector<std::string>& axes, const std::string& name) const {
  DeviceMesh mesh = cut(axes);
  const int position = ravel(mesh.coordinate_, mesh.shape_);
  mesh.shape_ = {product(mesh.shape_)};
  mesh.names_ = {name};
  mesh.coordinate_ = {position};
  mesh.groups_ = {world_->make_group(name, mesh.ranks_)};
  std::vector<int> stands_for;
  for (const auto& part : mesh.root_axes_) stands_for.insert(stands_for.end(), part.begin(), part.end());
  mesh.root_axes_ = {std::move(stands_for)};
  return mesh;
}

int DeviceMesh::rank_at(const std::vector<int>& coordinate) const {
  auto at_root = root_->coordinate;
  for (std::size_t d = 0; d < coordinate.size(); ++d) {
    std::vector<int> sizes;
    for (const int r : root_axes_[d]) sizes.push_back(root_->shape[r]);
    const auto parts = unravel(coordinate[d], sizes);
    for (std::size_t k = 0; k < parts.size(); ++k) at_root[root_axes_[d][k]] = parts[k];
  }
  return ravel(at_root, root_->shape);
}

DeviceMesh DeviceMesh::concatenate(const DeviceMesh& outer, const DeviceMesh& inner) {
  const std::string both =
      "mesh " + describe(outer.shape_, outer.names_) + " and mesh " + describe(inner.shape_, inner.names_);
  if (!outer.root_ || outer.root_ != inner.root_) {
    throw DistError(both + " have no common parent: make one mesh with the axes of both and slice them from it");
  }
  std::set<int> taken;
  for (const auto& axes : outer.root_axes_) taken.insert(axes.begin(), axes.end());
  DeviceMesh mesh = outer;
  for (std::size_t d = 0; d < inner.shape_.size(); ++d) {
    for (const int r : inner.root_axes_[d]) {
      if (!taken.insert(r).second)
        throw DistError(both + " overlap: '" + inner.names_[d] + "' lies along an axis of the other");
    }
    if (outer.has(inner.names_[d])) throw DistError(both + " both have an axis '" + inner.names_[d] + "'");
    mesh.shape_.push_back(inner.shape_[d]);
    mesh.names_.push_back(inner.names_[d]);
    mesh.coordinate_.push_back(inner.coordinate_[d]);
    mesh.groups_.push_back(inner.groups_[d]);
    mesh.root_axes_.push_back(inner.root_axes_[d]);
  }
  mesh.ranks_.clear();
  for (int i = 0; i < mesh.size(); ++i) mesh.ranks_.push_back(mesh.rank_at(unravel(i, mesh.shape_)));
  return mesh;
}

}  // namespace titan::dist
