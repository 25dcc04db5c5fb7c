// A microbatch of one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace titan {

inline constexpr std::int64_t kIgnoredLabel = -100;   // a label that does not count: nn::kIgnoreIndex
inline constexpr std::int64_t kUnknownDocument = -1;  // the model finds out which document a token belongs to

struct Batch {
  at::Tensor tokens;  // int64 [B, T], host
  at::Tensor labels;  // int64 [B, T], host; labels[b][t] follows tokens[b][t]; kIgnoredLabel counts as no label
  // int64 [B, T], host: the number, within the row, of the document that a token belongs to and attends to, or
  // kUnknownDocument. Undefined if it is unknown for all tokens. If the batch has a part of each row, those of whole
  // rows, and all of them known.
  at::Tensor documents = {};
  // int64 [B, T], host: the number of labels that count in a label's conversation, each of which counts one part of so
  // many, so that conversations count alike. Undefined if each label counts once.
  at::Tensor labels_of_sample = {};
  // int64 [T], host: the positions of the tokens in their rows, in ascending order, if the batch has a part of each
  // row. Undefined if it has whole rows.
  at::Tensor positions = {};
  // int64 0-d, host: the stage of a pipeline that gets this batch (LanguageModel), whose tokens may be hidden states.
  // Undefined if the whole model does.
  at::Tensor stage = {};
};

}  // namespace titan
