#include "train/parts/split_rows.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "nn/documents.h"

namespace titan::train {
namespace {

// Returns the number of each token's document, int64 [B, T], all of them known.
at::Tensor documents_of(const Batch& batch, std::optional<std::int64_t> end) {
  if (!end && !batch.documents.defined()) return at::zeros_like(batch.tokens);
  return nn::known_documents(batch.tokens, end, batch.documents);
}

class SplitRows : public ForwardBackward {
 public:
  SplitRows(std::unique_ptr<ForwardBackward> whole, const RowSplit& split) : whole_(std::move(whole)), split_(split) {}

  LossSum forward(const Batch& batch) override { return of_rows(batch, whole_->forward(split_.part_of(batch))); }

  LossSum forward_backward(const Batch& batch, const Objective& objective) override {
    return of_rows(batch, whole_->forward_backward(split_.part_of(batch), objective));
  }

 private:
  LossSum of_rows(const Batch& batch, const LossSum& part) const {
    return {part.loss, split_.counts_labels() ? count_valid_tokens(batch) : 0};
  }

  std::unique_ptr<ForwardBackward> whole_;
  RowSplit split_;
};

}  // namespace

Batch RowSplit::part_of(const Batch& batch) const {
  const auto documents = documents_of(batch, model_.document_end());
  const auto ranges = parallel::split_row(sharing_.balance, batch.tokens.size(1), sharing_.group.size(),
                                          nn::document_lengths(batch.tokens, std::nullopt, documents));
  // The host does not wait for a copy from page-locked memory to an accelerator.
  const bool is_pinned = batch.tokens.is_pinned();
  const auto pinned = [&](const at::Tensor& tensor) { return is_pinned ? tensor.pin_memory() : tensor; };
  const auto positions = pinned(parallel::positions_of(ranges[static_cast<std::size_t>(sharing_.group.rank())]));
  const auto part = [&](const at::Tensor& tensor) {
    return tensor.defined() ? pinned(tensor.index_select(1, positions.to(tensor.device()))) : tensor;
  };
  return {.tokens = part(batch.tokens),
          .labels = part(batch.labels),
          .documents = documents,
          .labels_of_sample = part(batch.labels_of_sample),
          .positions = positions};
}

std::unique_ptr<ForwardBackward> make_split_rows(std::unique_ptr<ForwardBackward> whole, const RowSplit& split) {
  return std::make_unique<SplitRows>(std::move(whole), split);
}

}  // namespace titan::train
