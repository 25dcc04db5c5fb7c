// Ranks as a grid with named dims, after torch.distributed.device_mesh.DeviceMesh: row-major over the ranks, the last
// dim fastest. "dim" is PyTorch's word for an axis of the mesh.
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
  static DeviceMesh init(World& world, std::vector<int> shape, std::vector<std::string> dim_names);

  int ndim() const { return static_cast<int>(shape_.size()); }
  int size() const;  // ranks in the grid
  int size(const std::string& dim) const;
  const std::vector<int>& shape() const { return shape_; }
  const std::vector<std::string>& dim_names() const { return names_; }
  bool has(const std::string& dim) const;
  c10::Device device() const { return world_->device(); }

  // This rank's index along a dim, and its whole coordinate.
  int local_rank(const std::string& dim) const;
  const std::vector<int>& coordinate() const { return coordinate_; }
  // The global ranks of the grid, row-major, and the coordinate of the one at `place` among them.
  const std::vector<int>& ranks() const { return ranks_; }
  std::vector<int> coordinate_of(int place) const;

  // The group of the ranks that differ from this one in `dim` only.
  ProcessGroup& group(const std::string& dim) const;
  // Of a mesh with one dim.
  ProcessGroup& group() const;

  // The group of the `size` neighbours along `dim` that this rank is among: blocks of consecutive ranks. Collective
  // over them. Throws DistError when the dim does not divide by `size`.
  std::shared_ptr<ProcessGroup> neighbours(const std::string& dim, int size) const;

  // The sub-grid through this rank over the named dims, which must be in this mesh's order. Shares the groups.
  DeviceMesh slice(const std::vector<std::string>& dims) const;

  // The named dims (ascending) as one dim: "batch" and "cp" as "loss". Collective over the ranks concerned.
  DeviceMesh flatten(const std::vector<std::string>& dims, const std::string& name) const;

  // One mesh with the dims of `outer`, then those of `inner`. Shares the groups; not collective. Throws DistError when
  // the two were not sliced or flattened from one init(), or have a dim of it in common.
  static DeviceMesh concatenate(const DeviceMesh& outer, const DeviceMesh& inner);

 private:
  // The grid of init() that a mesh was cut from.
  struct Root {
    std::vector<int> shape;
    std::vector<int> coordinate;  // this rank's
  };

  int dim_index(const std::string& dim) const;
  // The global ranks that share this rank's coordinates outside `dims`, row-major over `dims`.
  std::vector<int> ranks_along(const std::vector<int>& dims) const;
  // The global rank at a coordinate of this mesh, by way of the root's.
  int rank_at(const std::vector<int>& coordinate) const;

  World* world_ = nullptr;
  std::vector<int> shape_;
  std::vector<std::string> names_;
  std::vector<int> ranks_;  // global ranks of the grid, row-major
  std::vector<int> coordinate_;
  std::vector<std::shared_ptr<ProcessGroup>> groups_;  // one a dim
  std::shared_ptr<const Root> root_;
  std::vector<std::vector<int>> root_dims_;  // of each dim: the dims of the root that it stands for
};

}  // namespace titan::dist
