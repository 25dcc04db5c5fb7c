// Context parallelism in the train step: the rows of a batch are dealt out to the ranks that share it.
#pragma once

#include <memory>

#include "contract/model.h"
#include "parallel/context/split_attention.h"
#include "train/step/forward_backward.h"

namespace titan::train {

// Deals rows out to the ranks of a sharing's group, which read the same batches. The model's attention is replaced by
// SplitAttentionCores of the same sharing.
class RowSplit {
 public:
  // `model` must outlive this.
  RowSplit(const LanguageModel& model, const parallel::RowSharing& sharing) : model_(model), sharing_(sharing) {}

  // Returns this rank's tokens of each row, with their positions and the documents of the whole rows. The split depends
  // on the documents of all rows: take the part of the rows that one call of the model gets.
  Batch part_of(const Batch& batch) const;
  // True for the first rank of the group, which counts the labels of whole rows: those of a conversation that a part of
  // a row has need not add up to a number.
  bool counts_labels() const { return sharing_.group.rank() == 0; }

 private:
  const LanguageModel& model_;
  parallel::RowSharing sharing_;
};

// Returns the implementation that gives `whole` this rank's part of each batch, of which it computes a part of the sum
// of losses.
std::unique_ptr<ForwardBackward> make_split_rows(std::unique_ptr<ForwardBackward> whole, const RowSplit& split);

}  // namespace titan::train
