// Makes a row of a window: what both data orders write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "contract/batch.h"
#include "data/order/row_source.h"
#include "data/sources/token_marks.h"

namespace titan::data {

// Writes the first seq_len tokens of `window`, which has seq_len + 1, to `row.input`, and the last seq_len to
// `row.label`: kIgnoredLabel for those that are marked as no label or begin a sample, since nothing before them leads
// to them. `row.documents` gets the number in the row of the sample that each input belongs to, kUnknownDocument up to
// the first mark; `row.labels_of_sample` how many labels of that sample count, at least 1.
template <typename Token>
void write_row(std::span<const Token> window, const RowSpans& row) {
  const std::size_t seq_len = window.size() - 1;
  for (const auto& span : {row.input, row.label})
    TITAN_CHECK(span.size() == seq_len, "a row must have seq_len elements");
  for (const auto& span : {row.documents, row.labels_of_sample})
    TITAN_CHECK(span.empty() || span.size() == seq_len, "a row must have seq_len elements");
  std::vector<std::int64_t> samples(seq_len), counts(1);  // counts: of the text before the first mark, and each sample
  for (std::size_t i = 0; i < seq_len; ++i) {
    const std::int64_t token = window[i], next = window[i + 1];
    row.input[i] = id_of(token);
    row.label[i] = is_label(next) && !begins(next) ? id_of(next) : kIgnoredLabel;
    if (begins(token)) counts.push_back(0);
    samples[i] = static_cast<std::int64_t>(counts.size()) - 1;
    counts.back() += row.label[i] == kIgnoredLabel ? 0 : 1;
  }
  for (std::size_t i = 0; i < row.documents.size(); ++i) row.documents[i] = samples[i] - 1;
  for (std::size_t i = 0; i < row.labels_of_sample.size(); ++i)
    row.labels_of_sample[i] = std::max<std::int64_t>(1, counts[static_cast<std::size_t>(samples[i])]);
}

static_assert(kUnknownDocument == -1);  // the text before the first mark

}  // namespace titan::data
