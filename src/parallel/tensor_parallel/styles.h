// Styles in which the ranks of a tensor-parallel group compute one module together: those of
// torch.distributed.tensor.parallel, with the same names and defaults, for hidden states [..., D].
//
// With sequence parallelism the hidden states are [B, T, D], and between the modules of a block each rank holds its
// part of the sequence, [B, T / ranks, D]. If its style says so, a module gets the full sequence and works on its part
// of the weights.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/mesh.h"
#include "nn/module.h"

namespace titan::tp {

// Layout of hidden states over the ranks at the input or output of a module.
enum class Layout {
  kWhole,     // each rank has all of them; as an input, its gradient is summed over the ranks
  kGathered,  // each rank has all of them, and what gathered them (PrepareModuleInput) sums their gradients
  kSequence,  // cut along T
  kFeatures   // cut along the last dim
};

// Changes one module in place: its parameters become this rank's part, and its calls communicate. The module must be
// on the meta device, with nothing attached yet. Not collective. Throws InternalError for a module that it cannot
// split.
class ParallelStyle {
 public:
  virtual ~ParallelStyle() = default;
  // `mesh`: one axis, the ranks that share the module.
  virtual void apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const = 0;
};

// The styles of linear layers split an adapter (nn/lora_linear.h) with its layer: colwise, A is replicated and B
// Shard(0); rowwise, A is Shard(1) and B replicated. Backward leaves a term of the gradient of the replicated one on
// each rank. Styles that compute a layer's product themselves (overlapped, VocabParallelLoss) throw InternalError.
//
// A linear layer whose output features are split: weight Shard(0). Its input is kWhole, kGathered or kSequence. kWhole
// as output gathers the features.
class ColwiseParallel : public ParallelStyle {
 public:
  explicit ColwiseParallel(Layout input = Layout::kWhole, Layout output = Layout::kFeatures)
      : input_(input), output_(output) {}
  void apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const override;

 private:
  Layout input_, output_;
};

// A linear layer whose input features are split, weight Shard(1), with input kFeatures; or an embedding whose rows
// are split, weight Shard(0), which gets all tokens. The output is the sum of the ranks' terms, kWhole or kSequence.
class RowwiseParallel : public ParallelStyle {
 public:
  // `overlaps`: a linear layer whose output is kSequence overlaps the sum with its matmul (overlapped_linear.h).
  explicit RowwiseParallel(Layout output = Layout::kWhole, bool overlaps = false)
      : output_(output), overlaps_(overlaps) {}
  void apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const override;

 private:
  void sum_output(nn::Module& module, dist::ProcessGroup& group) const;

  Layout output_;
  bool overlaps_;
};

// A module that works on each token separately, on this rank's part of the sequence. Its weights are replicated;
// backward leaves a term of their gradients on each rank.
class SequenceParallel : public ParallelStyle {
 public:
  void apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const override;
};

// A module with split children that takes hidden states as its first input: it gets the full sequence. Other inputs
// are unchanged.
class PrepareModuleInput : public ParallelStyle {
 public:
  PrepareModuleInput() = default;
  // `overlapped_with`: two or more linear layers below the module that all take its input, in the order of its calls.
  // The first one works on what has arrived while the rest is sent (overlapped_linear.h), the others on the full
  // sequence. The module itself sees its part of the sequence.
  explicit PrepareModuleInput(std::vector<std::string> overlapped_with)
      : overlapped_with_(std::move(overlapped_with)) {}
  void apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const override;

 private:
  std::vector<std::string> overlapped_with_;
};

// The projection to logits, weight [V, D] Shard(0), with input kSequence. It returns the loss if it gets labels as a
// second input, otherwise all logits.
class VocabParallelLoss : public ParallelStyle {
 public:
  // `gathers_logits`: each rank computes the loss from all logits (parallelism.disable_loss_parallel). Otherwise it
  // uses only its part of the vocabulary, and three numbers per token are exchanged.
  explicit VocabParallelLoss(bool gathers_logits) : gathers_logits_(gathers_logits) {}
  void apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const override;

 private:
  bool gathers_logits_;
};

}  // namespace titan::tp
