// Context parallelism in the train step: the rows of a batch are dealt out to the ranks that share it.
#pragma once

#include <memory>

#include "parallel/context/split_attention.h"
#include "train/step/forward_backward.h"

namespace titan::train {

// Returns the implementation that gives `whole` this rank's tokens of each row, with their positions and the documents
// of the whole rows. The ranks of the sharing's group read the same batches, and each has a part of every sum of
// losses. The model's attention is replaced by SplitAttentionCores of the same sharing. The first rank of the group
// counts the labels of the rows. `model` must outlive it.
std::unique_ptr<ForwardBackward> make_split_rows(std::unique_ptr<ForwardBackward> whole, LanguageModel& model,
                                                 const parallel::RowSharing& sharing);

}  // namespace titan::train
