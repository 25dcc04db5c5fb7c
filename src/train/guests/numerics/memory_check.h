// Hashes what only the optimizer's update may write, so that bits which change in between are found.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/process_group.h"
#include "optim/optimizer.h"
#include "train/guests/numerics/bits_hash.h"
#include "train/step/run_parameters.h"

namespace titan::train {

// The hashes of this rank's tensors at one time.
struct MemoryHashes {
  // The tensors by name: "layers.3.attention.wq.weight", "exp_avg of layers.3.attention.wq.weight".
  std::vector<std::string> tensors;
  std::vector<at::Tensor> hashes;  // int64 0-d, on the tensors' devices
  bool has_state = false;          // also of the optimizer's state
};

// Returns the names of the tensors whose hashes differ, in order. Waits for the device. Throws InternalError if these
// are not hashes of the same tensors.
std::vector<std::string> changed_between(const MemoryHashes& before, const MemoryHashes& after);

class MemoryCheck {
 public:
  // All must outlive this, and every parameter must have its final sharding.
  MemoryCheck(const RunParameters& parameters, optim::Optimizer& optimizer)
      : parameters_(parameters), optimizer_(optimizer) {}

  // Says of a parameter of the optimizer, by its index, that its weight and its summed_state() need no hash.
  using LeavesOut = std::function<bool(std::size_t index)>;

  // Hashes this rank's shards of all weights, frozen ones too, and, if `with_state`, the state that the optimizer keeps
  // for them, its step counters too. Costs a pass over these tensors. Does not wait for a device.
  MemoryHashes hash(bool with_state, const LeavesOut& leaves_out = {});

 private:
  const RunParameters& parameters_;
  optim::Optimizer& optimizer_;
  BitsHash bits_hash_;
};

// The tensors that changed, of all ranks.
struct MemoryReport {
  struct Change {
    int rank;
    std::string tensor;
  };
  std::vector<Change> changes;     // by rank, then in the model's order
  std::vector<std::string> hosts;  // by rank

  std::vector<int> ranks() const;  // ascending
};

// Returns the report of all ranks; `changed`: this rank's tensors. Collective.
MemoryReport gather_changes(const std::vector<std::string>& changed, dist::ProcessGroup& world);

// Returns one line that names the tensors (the first of many), the ranks, and their hosts.
std::string describe(const MemoryReport& report);

}  // namespace titan::train
