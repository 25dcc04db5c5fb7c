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

  // One rank: finish() is all there is to do.
  bool is_local() const;
  bool all_reduces() const { return rule_.replicate_group && rule_.all_reduce; }
  // One shard: the output is the memory of the input.
  bool scatters_in_place() const { return scatter_.output.is_same(scatter_.input); }

  // In this order; each that starts something is collective. add_partial() is for the stream of the reduce-scatter, to
  // which the partial sums' memory belongs; start_all_reduce() only where all_reduces(). finish() is true when gradients
  // are still on their way to the host.
  void start_reduce_scatter();
  void wait_reduce_scatter();
  void add_partial();
  void start_all_reduce();
  bool finish();

  // Memory of the caller's stream, until that has waited for add_partial().
  void release_input();

 private:
  void cast_grads();
  bool finish_local();

  std::vector<FsdpParam*> params_;
  std::vector<at::Tensor> grads_;  // of a reduction that needs no exchange
  ReductionRule rule_;
  bool is_mean_ = false;  // the exchange divides
  double divide_after_ = 1;
  ReduceScatterResult scatter_;
  at::Tensor added_partial_;
  dist::Work all_reduce_;
  bool is_partial_ = false;
};

}  // namespace titan::fsdp
