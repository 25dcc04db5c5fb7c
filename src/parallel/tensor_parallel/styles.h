// How single modules are computed by the ranks of a tensor-parallel group together: the styles of
// torch.distributed.tensor.parallel, by their names there, for hidden states [B, T, D].
//
// Between the modules of a block each rank holds its part of the sequence, [B, T / ranks, D] (sequence parallelism);
// where a style says so a module gets the whole sequence, and works on its part of the weights.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/mesh.h"
#include "nn/module.h"

namespace titan::tp {

// How hidden states lie on the ranks where a module begins or ends.
enum class Layout {
  kWhole,     // each rank has all of them
  kSequence,  // cut along T
  kFeatures   // cut along the last dim
};

// Changes one module in place, which is on the meta device and has nothing attached yet: its parameters become this
// rank's part, its calls communicate. Not collective. Throws InternalError where the module is none that it can split.
class ParallelStyle {
 public:
  virtual ~ParallelStyle() = default;
  // `mesh`: one axis, the ranks that share the module.
  virtual void apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const = 0;
};

// A linear layer whose output features are split: weight Shard(0). Input and output [B, T, ...]; kWhole as output
// gathers the features.
class ColwiseParallel : public ParallelStyle {
 public:
  explicit ColwiseParallel(Layout input = Layout::kWhole, Layout output = Layout::kFeatures)
      : input_(input), output_(output) {}
  void apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const override;

 private:
  Layout input_, output_;
};

// A linear layer whose input features are split, weight Shard(1), and which gets them so; or an embedding whose rows
// are, weight Shard(0), and which gets all tokens. The terms are summed into kSequence.
class RowwiseParallel : public ParallelStyle {
 public:
  // `overlaps`: a linear layer sums beside its product (overlapped_linear.h).
  explicit RowwiseParallel(bool overlaps = false) : overlaps_(overlaps) {}
  void apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const override;

 private:
  bool overlaps_;
};

// A module that works on each token for itself, on this rank's part of the sequence. Its weights are whole everywhere;
// backward leaves terms of their gradients.
class SequenceParallel : public ParallelStyle {
 public:
  void apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const override;
};

// A module whose children are split, and which takes hidden states as its first input: it gets the whole sequence.
// Other inputs stay as they are.
class PrepareModuleInput : public ParallelStyle {
 public:
  PrepareModuleInput() = default;
  // Linear layers below the module, two or more, all of whose input that is, in the order of its calls: the first works
  // on what has arrived while the rest is on its way (overlapped_linear.h), the others on the whole. The module itself
  // sees its part of the sequence.
  explicit PrepareModuleInput(std::vector<std::string> overlapped_with)
      : overlapped_with_(std::move(overlapped_with)) {}
  void apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const override;

 private:
  std::vector<std::string> overlapped_with_;
};

// The projection to logits, weight [V, D] Shard(0), that goes on to the loss where it gets labels as a second input. Its
// input is kSequence. Without labels it puts out all logits.
class VocabParallelLoss : public ParallelStyle {
 public:
  // `gathers_logits`: each rank computes the loss of all logits (parallelism.disable_loss_parallel); else of its part
  // of the vocabulary alone, and three numbers per token are exchanged.
  explicit VocabParallelLoss(bool gathers_logits) : gathers_logits_(gathers_logits) {}
  void apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const override;

 private:
  bool gathers_logits_;
};

}  // namespace titan::tp
