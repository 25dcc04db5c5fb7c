// Compares the copies of parameters and optimizer state that several ranks hold. They start equal, and every rank adds
// the same numbers to its own: copies that differ mean that memory or a computation was wrong somewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "distributed/parallel_dims.h"
#include "optim/optimizer.h"
#include "train/guests/numerics/bits_hash.h"
#include "train/step/run_parameters.h"

namespace titan::train {

struct ReplicaReport {
  // A part of a tensor whose copies differ.
  struct Difference {
    std::string tensor;                   // "layers.3.attention.wq.weight", "exp_avg of layers.3.attention.wq.weight"
    std::vector<std::vector<int>> ranks;  // those that hold the same bits, the most ranks first
    // True if more than half of the copies agree, so that the others are wrong.
    bool has_majority() const;
  };
  std::vector<Difference> differences;  // in the model's order; empty if all copies are equal
  std::vector<std::string> hosts;       // by rank; empty if all copies are equal

  // Returns the ranks of which at least one has a wrong copy, ascending.
  std::vector<int> suspects() const;
};

// Returns one line that names the tensors (the first of many), the ranks, and their hosts.
std::string describe(const ReplicaReport& report);

class ReplicaCheck {
 public:
  // Looks for copies along dp_replicate, along tp (parameters that it does not split, such as norms), and along pp
  // (parameters that are tied over stages). fully_shard leaves no copies along its own axis. All must outlive this, and
  // every parameter must have its final sharding. Not collective.
  ReplicaCheck(const RunParameters& parameters, optim::Optimizer& optimizer, const dist::Meshes& meshes,
               dist::ProcessGroup& world);

  // True if ranks hold copies. The same on every rank.
  bool has_copies() const { return !axes_.empty(); }

  // Hashes this rank's part of everything that other ranks have a copy of, weights, frozen weights and optimizer state
  // alike, and compares the hashes. The report is the same on every rank. Costs a pass over these tensors, and one
  // all-reduce of two numbers per tensor and axis. Collective over the world.
  ReplicaReport run();

 private:
  // An axis of the mesh along which ranks hold copies.
  struct Axis {
    dist::ProcessGroup* group;
    std::vector<bool> has_copies;  // of each parameter, if this rank has it
  };
  // A tensor of this rank. A parameter and its optimizer state have consecutive places, the same on every rank.
  struct Own {
    std::int64_t place;
    std::string state;  // "" for the parameter itself
    at::Tensor tensor;
    std::string box;  // the part of the full tensor
  };
  void agree_on_places();
  std::vector<Own> own_tensors();
  at::Tensor hash(const std::vector<Own>& own);
  at::Tensor differing(const Axis& axis, const at::Tensor& hashes) const;
  ReplicaReport report(const std::vector<Own>& own, const at::Tensor& hashes, const at::Tensor& differs) const;
  bool is_copied(std::size_t parameter) const;

  const RunParameters& parameters_;
  optim::Optimizer& optimizer_;
  dist::ProcessGroup& world_;
  std::vector<Axis> axes_;
  std::int64_t places_each_ = 0;  // of a parameter; 0 until the ranks have agreed
  BitsHash bits_hash_;
};

}  // namespace titan::train
