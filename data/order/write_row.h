// Makes a row of a window: what both data orders write.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "contract/batch.h"
#include "data/sources/token_marks.h"

namespace titan::data {

// Writes the first seq_len tokens of `window`, which has seq_len + 1, to `input`, and the last seq_len to `label`:
// kIgnoredLabel for those that are marked as no label or begin a sample, since nothing before them leads to them.
// `documents`: empty, or gets the number in the row of the sample that each input belongs to; kUnknownDocument up to
// the first mark.
template <typename Token>
void write_row(std::span<const Token> window, std::span<std::int64_t> input, std::span<std::int64_t> label,
               std::span<std::int64_t> documents) {
  const std::size_t seq_len = window.size() - 1;
  TITAN_CHECK(input.size() == seq_len && label.size() == seq_len, "a row must have seq_len elements");
  TITAN_CHECK(documents.empty() || documents.size() == seq_len, "a row must have seq_len documents");
  std::int64_t document = kUnknownDocument;
  for (std::size_t i = 0; i < seq_len; ++i) {
    const std::int64_t token = window[i], next = window[i + 1];
    input[i] = id_of(token);
    label[i] = is_label(next) && !begins(next) ? id_of(next) : kIgnoredLabel;
    if (begins(token)) ++document;
    if (!documents.empty()) documents[i] = document;
  }
}

}  // namespace titan::data
