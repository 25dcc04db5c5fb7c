// Ranks as a grid with named axes, after torch.distributed.device_mesh.DeviceMesh, which calls them dims: row-major
// over the ranks, the last axis fastest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "distributed/world.h"

namespace titan::dist {

class DeviceMesh {
 public:
  // The grid `shape` over all ranks of the world, in rank order. Collective over the world. Throws DistError when the
  // product of `shape` is not the world's size, or when names and shape differ in length or repeat.
  static DeviceMesh init(World& world, std::vector<int> shape, std::vector<std::string> axis_names);
  // The same grid without process groups, which the views cut from it make: an axis that no view names connects nobody.
  // Not collective.
  static DeviceMesh layout(World& world, std::vector<int> shape, std::vector<std::string> axis_names);

  int num_axes() const { return static_cast<int>(shape_.size()); }
  int size() const;  // ranks in the grid
  int size(const std::string& axis) const;
  const std::vector<int>& shape() const { return shape_; }
  const std::vector<std::string>& axis_names() const { return names_; }
  bool has(const std::string& axis) const;
  c10::Device device() const { return world_->device(); }

  // This rank's index along an axis, and its whole coordinate.
  int local_rank(const std::string& axis) const;
  const std::vector<int>& coordinate() const { return coordinate_; }
  // The global ranks of the grid, row-major, and the coordinate of the one at `place` among them.
  const std::vector<int>& ranks() const { return ranks_; }
  std::vector<int> coordinate_of(int place) const;

  // The group of the ranks that differ from this one along `axis` only. Throws InternalError on a layout().
  ProcessGroup& group(const std::string& axis) const;
  // Of a mesh with one axis.
  ProcessGroup& group() const;

  // The group of the `size` neighbours along `axis` that this rank is among: blocks of consecutive ranks. Collective
  // over them. Throws DistError when the axis does not divide by `size`.
  std::shared_ptr<ProcessGroup> neighbours(const std::string& axis, int size) const;

  // The sub-grid through this rank over the named axes, which must be in this mesh's order. Shares the groups; of a
  // layout() it makes them, collectively over the ranks of each.
  DeviceMesh slice(const std::vector<std::string>& axes) const;

  // The named axes (ascending) as one axis: "batch" and "cp" as "loss". Collective over the ranks concerned.
  DeviceMesh flatten(const std::vector<std::string>& axes, const std::string& name) const;

  // One mesh with the axes of `outer`, then those of `inner`. Shares the groups; not collective. Throws DistError when
  // the two were not sliced or flattened from one init() or layout(), or have an axis of it in common.
  static DeviceMesh concatenate(const DeviceMesh& outer, const DeviceMesh& inner);

 private:
  // The grid of init() or layout() that a mesh was cut from.
  struct Root {
    std::vector<int> shape;
    std::vector<int> coordinate;  // this rank's
  };

  int axis_index(const std::string& axis) const;
  ProcessGroup& group_of(int axis) const;
  // Makes the groups that are not there yet.
  void make_groups();
  // The sub-grid over the named axes, with the groups that this mesh has.
  DeviceMesh cut(const std::vector<std::string>& axes) const;
  // The global ranks that share this rank's coordinates outside `axes`, row-major over `axes`.
  std::vector<int> ranks_along(const std::vector<int>& axes) const;
  // The global rank at a coordinate of this mesh, by way of the root's.
  int rank_at(const std::vector<int>& coordinate) const;

  World* world_ = nullptr;
  std::vector<int> shape_;
  std::vector<std::string> names_;
  std::vector<int> ranks_;  // global ranks of the grid, row-major
  std::vector<int> coordinate_;
  std::vector<std::shared_ptr<ProcessGroup>> groups_;  // one per axis; null in a layout()
  std::shared_ptr<const Root> root_;
  std::vector<std::vector<int>> root_axes_;  // of each axis: the axes of the root that it stands for
};

}  // namespace titan::dist
