// The reduction of one group's gradients: reduce-scatter over the shards, all-reduce over the replicas, division, and
// the sum into the shards' gradients (after foreach_reduce of torch's _fsdp_collectives.py). CommContext decides what
// of it runs beside what.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <vector>

#include "distributed/process_group.h"
#include "parallel/fsdp/collectives.h"
#include "parallel/fsdp/fsdp_param.h"

namespace titan::fsdp {

struct ReductionRule {
  dist::ProcessGroup* shard_group = nullptr;
  dist::ProcessGroup* replicate_group = nullptr;  // null: no replicas
  bool all_reduce = true;                         // false: the sum over the shards waits in `*partial` for a later one
  at::Tensor* partial = nullptr;
  std::optional<at::ScalarType> reduce_dtype;  // unset: the gradients' own
  double divide_factor = 1;                    // of the sum over all ranks
  std::string_view label;                      // of its collectives (CollectiveLabel); must outlive the reduction
};

class Reduction {
 public:
  // Copies `grads` (one per parameter, unsharded) in, on the caller's current stream; they are free then.
  Reduction(std::vector<FsdpParam*> params, std::vector<at::Tensor> grads, const ReductionRule& rule);

  // In this order; each is collective and waits for the one before. finish() is true when gradients are still on their
  // way to the host.
  void start_reduce_scatter();
  void wait_reduce_scatter();
  // False: there is nothing to wait for before finish().
  bool start_all_reduce();
  bool finish();

  // Memory of the caller's stream until the reduce-scatter is over.
  void release_input() { scatter_.input.reset(); }
  const at::Tensor& output() const { return scatter_.output; }

 private:
  bool is_local() const;
  bool finish_local();

  std::vector<FsdpParam*> params_;
  std::vector<at::Tensor> grads_;  // of a reduction that needs no exchange
  ReductionRule rule_;
  double divide_after_ = 1;
  ReduceScatterResult scatter_;
  dist::Work all_reduce_;
  bool is_partial_ = false;
};

}  // namespace titan::fsdp
