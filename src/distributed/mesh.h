// A grid of ranks with named axes, after torch.distributed.device_mesh.DeviceMesh, which calls them dims. Row-major
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
  // Makes the grid `shape` over all ranks of the world, in rank order. Collective over the world. Throws DistError if
  // the product of `shape` is not the world's size, if names and shape differ in length, or if a name repeats.
  static DeviceMesh init(World& world, std::vector<int> shape, std::vector<std::string> axis_names);
  // Makes the same grid without process groups; the views sliced from it make the groups that they need. Not
  // collective.
  static DeviceMesh layout(World& world, std::vector<int> shape, std::vector<std::string> axis_names);

  int num_axes() const { return static_cast<int>(shape_.size()); }
  int size() const;  // ranks in the grid
  int size(const std::string& axis) const;
  const std::vector<int>& shape() const { return shape_; }
  const std::vector<std::string>& axis_names() const { return names_; }
  bool has(const std::string& axis) const;
  c10::Device device() const;

  // This rank's index along an axis, and its full coordinate.
  int local_rank(const std::string& axis) const;
  const std::vector<int>& coordinate() const { return coordinate_; }
  // The global ranks of the grid, row-major, and the coordinate of the rank at index `place` of them.
  const std::vector<int>& ranks() const { return ranks_; }
  std::vector<int> coordinate_of(int place) const;

  // Returns the group of the ranks that differ from this one only along `axis`. Throws InternalError on a layout().
  ProcessGroup& group(const std::string& axis) const;
  // Returns the group of a mesh with one axis. Throws DistError for more axes.
  ProcessGroup& group() const;

  // Makes the group of this rank's block of `size` consecutive ranks along `axis`, for tensors on its device.
  // Collective over the block. Throws DistError if the axis is not divisible by `size`.
  std::shared_ptr<ProcessGroup> neighbours(const std::string& axis, int size) const;

  // Returns the sub-grid through this rank over the named axes, which must be in this mesh's order. Shares the
  // groups; on a layout() it makes them, collectively over the ranks of each.
  DeviceMesh slice(const std::vector<std::string>& axes) const;

  // Returns a mesh with the named axes (in this mesh's order) merged into one: "batch" and "cp" into "loss".
  // Collective over the ranks concerned.
  DeviceMesh flatten(const std::vector<std::string>& axes, const std::string& name) const;

  // Makes the backends of all axes' groups for tensors on an accelerator (ProcessGroup::connect_accelerator).
  // Collective over the grid.
  void connect_accelerators() const;

  // Returns one mesh with the axes of `outer`, then those of `inner`. Shares the groups; not collective. Throws
  // DistError if the two do not come from the same init() or layout(), or share one of its axes or an axis name.
  static DeviceMesh concatenate(const DeviceMesh& outer, const DeviceMesh& inner);

 private:
  // The grid of init() or layout() that a mesh was cut from.
  struct Root {
    std::vector<int> shape;
    std::vector<int> coordinate;  // this rank's
  };

  int axis_index(const std::string& axis) const;
  ProcessGroup& group_of(int axis) const;
  // Makes the missing groups.
  void make_groups();
  // The sub-grid over the named axes, with the groups that this mesh has.
  DeviceMesh cut(const std::vector<std::string>& axes) const;
  // The global ranks that share this rank's coordinates outside `axes`, row-major over `axes`.
  std::vector<int> ranks_along(const std::vector<int>& axes) const;
  // Returns the global rank at a coordinate of this mesh, through the root's coordinates.
  int rank_at(const std::vector<int>& coordinate) const;

  World* world_ = nullptr;
  std::vector<int> shape_;
  std::vector<std::string> names_;
  std::vector<int> ranks_;  // global ranks of the grid, row-major
  std::vector<int> coordinate_;
  std::vector<std::shared_ptr<ProcessGroup>> groups_;  // one per axis; null in a layout()
  std::shared_ptr<const Root> root_;
  std::vector<std::vector<int>> root_axes_;  // per axis: the axes of the root that it covers
};

}  // namespace titan::dist
