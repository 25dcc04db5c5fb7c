// Computes the log-likelihoods of many texts with a model, which may be sharded, and with all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "contract/evaluation_task.h"
#include "contract/model.h"
#include "distributed/process_group.h"

namespace titan::train {

struct ScoringOptions {
  std::int64_t batch_size = 8;       // texts of one call of the model, at most
  std::int64_t vocab_size = 0;       // logits of one token
  std::int64_t length_multiple = 1;  // sequences must be a multiple of this: the ranks that share them
  std::int64_t logits_bytes = std::int64_t{256} << 20;  // memory for the logits of one call of several texts
};

class LogLikelihoods {
 public:
  // Plans the calls of the model. The plan does not depend on the number of ranks: a text is always computed together
  // with the same others, so that its log-likelihood does not depend on that number either, if each rank has as many
  // threads. Texts of one call are about as long as each other and padded on the right, where no scored token looks.
  // Texts that differ only in their last token, such as the answers A to D, are computed once. `texts` must outlive
  // this.
  LogLikelihoods(std::span<const ScoredText> texts, ScoringOptions options);

  std::size_t num_calls() const { return calls_.size(); }

  // Returns the log-likelihood of each text, in natural logarithms. The ranks of `group` take turns in the calls; ranks
  // that share the rows of a batch are in groups of their own, and give equal values. `stop` is asked after every call
  // and must return the same on all ranks; if it is true, returns nullopt. Collective: all ranks, over which the model
  // may be sharded, call the model equally often. The caller turns gradients off, sets the model to eval mode, and
  // reshards it afterwards.
  std::optional<std::vector<double>> compute(LanguageModel& model, at::Device device, dist::ProcessGroup& group,
                                             const std::function<bool()>& stop) const;

 private:
  // Tokens that the model gets, and the texts that are scored by what it makes of them.
  struct Input {
    std::vector<std::size_t> texts;  // indices; equal but for their last token and the number of scored ones
    std::int64_t length = 0;         // tokens
    std::int64_t num_scored = 0;     // the most of its texts
  };
  struct Call {
    std::vector<Input> inputs;
    bool is_too_large = false;  // one text whose logits must not be held all at once
  };

  std::vector<Input> unique_inputs() const;
  void plan(std::vector<Input> inputs);
  std::int64_t bytes_of_logits(std::int64_t num_tokens) const;
  void run(const Call& call, LanguageModel& model, at::Device device, std::vector<double>& sums) const;
  at::Tensor tokens_of(const Call& call) const;

  std::span<const ScoredText> texts_;
  ScoringOptions options_;
  std::vector<Call> calls_;
};

}  // namespace titan::train
