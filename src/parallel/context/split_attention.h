// Attention over rows whose tokens are dealt out to the ranks of a group (context parallelism): each rank has the
// queries, keys and values of its tokens, and attends to the keys and values of all ranks.
//
// B rows, N tokens of a rank, H query heads, K key and value heads, E head dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "distributed/process_group.h"
#include "nn/attention_core.h"
#include "parallel/context/row_split.h"

namespace titan::parallel {

enum class Rotation {
  kAllGather,  // each rank gets all keys and values at once, and attends to each query's keys in one call
  kRing        // keys and values go around the ranks; each step attends to those of one rank while the next ones travel
};

// The ranks that share rows, and how they do it.
struct RowSharing {
  dist::ProcessGroup& group;
  LoadBalance balance = LoadBalance::kHeadTail;
  Rotation rotation = Rotation::kAllGather;
};

// Returns the sharing by TorchTitan's names: "headtail", "ptrr" (kByWork) or nullopt, and "allgather" or "alltoall" (a
// ring). Throws InternalError for other names.
RowSharing row_sharing(dist::ProcessGroup& group, const std::optional<std::string>& load_balancer,
                       const std::string& rotate_method);

// Causal attention within documents, scaled by 1 / sqrt(E): q [B, H, N, E], k and v [B, K, N, E] of this rank's tokens,
// in ascending order of their positions -> [B, H, N, E]. `lengths`: the lengths of the documents of the whole rows,
// int64 [documents] on the host. Collective over the group, forward and backward; all ranks give the same lengths.
// Gradients of keys and values are summed over the ranks in float32. A checkpointed module can keep its result
// (nn/ops/op_trace.h). Source: ring attention, arXiv:2310.01889; PyTorch's
// torch/distributed/tensor/experimental/_context_parallel/_attention.py.
at::Tensor split_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& lengths,
                           const RowSharing& sharing);

// An AttentionCore for rows that ranks share. It runs split_attention() if the lengths of the documents, its fourth
// input, say that the rows are longer than its queries, and otherwise does what AttentionCore does: generation gives
// each rank whole rows.
class SplitAttentionCore : public nn::AttentionCore {
 public:
  explicit SplitAttentionCore(const RowSharing& sharing) : sharing_(sharing) {}
  at::Tensor forward(const nn::Tensors& inputs) override;

 private:
  RowSharing sharing_;
};

// Replaces every AttentionCore below `model` by a SplitAttentionCore. Call before anything is attached to them.
void split_attention_cores(nn::Module& model, const RowSharing& sharing);

}  // namespace titan::parallel
