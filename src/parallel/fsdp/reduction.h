// The reduction of one group's gradients: reduce-scatter over the shards, all-reduce over the replicas, division, and
// the sum into the shards' gradients (after foreach_reduce of torch's _fsdp_collectives.py). CommContext decides
// which parts run concurrently.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <vector>

#include "distributed/process_group.h"
#include "parallel/fsdp/collectives.h"
#include "parallel/fsdp/fsdp_param.h"
#include "parallel/fsdp/memory_observer.h"

namespace titan::fsdp {

struct ReductionRule {
  dist::ProcessGroup* shard_group = nullptr;
  dist::ProcessGroup* replicate_group = nullptr;  // null: no replicas
  bool all_reduce = true;                         // false: keeps the sum over the shards in `*partial`
  at::Tensor* partial = nullptr;
  std::optional<at::ScalarType> reduce_dtype;  // unset: the gradients' own
  double divide_factor = 1;                    // divides the sum over all ranks
  MemoryObserver* observer = nullptr;          // null: none
  std::string_view label;                      // for its collectives (trace/operation.h); must outlive the reduction
};

class Reduction {
 public:
  // Copies in `grads` (one per parameter, unsharded), on the caller's current stream; they are free then.
  Reduction(std::vector<FsdpParam*> params, std::vector<at::Tensor> grads, const ReductionRule& rule);

  // True with one rank: only finish() has work to do.
  bool is_local() const;
  bool all_reduces() const { return rule_.replicate_group && rule_.all_reduce; }
  // True with one shard: the output is the memory of the input.
  bool scatters_in_place() const { return scatter_.output.is_same(scatter_.input); }

  // Call in this order; the start_ methods are collective. Call add_partial() on the stream of the reduce-scatter,
  // which owns the partial sums' memory, and start_all_reduce() only if all_reduces(). finish() returns true if
  // gradients are still on their way to the host.
  void start_reduce_scatter();
  void wait_reduce_scatter();
  void add_partial();
  void start_all_reduce();
  bool finish();

  // Frees the input, memory of the caller's stream. That stream must have waited for add_partial() before.
  void release_input();

 private:
  void cast_grads();
  bool finish_local();
  bool accumulate(FsdpParam& param, const at::Tensor& chunk) const;

  std::vector<FsdpParam*> params_;
  std::vector<at::Tensor> grads_;  // only if no exchange is needed
  ReductionRule rule_;
  bool is_mean_ = false;  // the exchange divides
  double divide_after_ = 1;
  ReduceScatterResult scatter_;
  at::Tensor added_partial_;
  dist::Work all_reduce_;
  bool is_partial_ = false;
};

}  // namespace titan::fsdp
