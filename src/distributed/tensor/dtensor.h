// A tensor distributed over a mesh: this rank's piece, and how the pieces form the full tensor. Names and semantics
// are those of torch.distributed.tensor. Values only: autograd does not run through these calls; tensors come back
// detached.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "distributed/tensor/sharding.h"

namespace titan::dist {

struct FromLocalOptions {
  // The shape of the full tensor. Unset: every sharded dim has as many elements on each rank as on this one.
  std::optional<std::vector<std::int64_t>> global_shape = std::nullopt;
  // Compares dtypes, shapes and replicated values over the ranks; collective then.
  bool run_check = false;
};

class DTensor {
 public:
  // Wraps `local`, this rank's piece (for a Partial its term), without a copy. Throws DistError if its shape is not
  // that of this rank's box, or, with run_check, if the ranks disagree: every rank's message then names the rank,
  // what was expected and what was found.
  static DTensor from_local(at::Tensor local, const DeviceMesh& mesh, std::vector<Placement> placements,
                            const FromLocalOptions& options = {});
  // Takes this rank's piece of `whole`, which every rank has. Does not communicate. Throws DistError for Partial.
  static DTensor distribute(const at::Tensor& whole, const DeviceMesh& mesh, std::vector<Placement> placements);
  DTensor(at::Tensor local, Sharding sharding);

  const at::Tensor& to_local() const { return local_; }
  const DeviceMesh& mesh() const { return sharding_.mesh; }
  const std::vector<Placement>& placements() const { return sharding_.placements; }
  const std::vector<std::int64_t>& shape() const { return sharding_.spec.global_shape; }
  // This rank's box of the full tensor; for a Partial, the box of its term.
  const ShardSpec& spec() const { return sharding_.spec; }
  const Sharding& sharding() const { return sharding_; }

  // Returns the full tensor on every rank. Collective over the mesh.
  at::Tensor full_tensor() const;

  // Returns the tensor under other placements on the same mesh. Collective over the mesh axes that change, one at a
  // time: Shard to Replicate gathers, Replicate to Shard only cuts, Partial to Replicate all-reduces, Partial to
  // Shard reduce-scatters, Shard(i) to Shard(j) gathers and cuts. If several mesh axes cut one tensor dim, the last
  // cut is undone first; an unchanged cut after one that changes is undone too, and made again. Throws DistError for
  // a new Partial, or for the average of an integer tensor. The result may share this one's memory.
  DTensor redistribute(std::vector<Placement> placements) const;

  // Returns "DTensor [8, 6] float over (fsdp=2, tp=2), (Shard(0), Replicate())", for messages.
  std::string text() const;

 private:
  at::Tensor local_;
  Sharding sharding_;
};

}  // namespace titan::dist
