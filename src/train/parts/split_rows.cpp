#include "train/parts/split_rows.h"

#include <ATen/ATen.h>

#include <utility>

#include "nn/documents.h"

namespace titan::train {
namespace {

class SplitRows : public ForwardBackward {
 public:
  SplitRows(std::unique_ptr<ForwardBackward> whole, LanguageModel& model, const parallel::RowSharing& sharing)
      : whole_(std::move(whole)), model_(model), sharing_(sharing) {}

  std::int64_t num_parts() const override { return whole_->num_parts(); }

  bool has_loss() const override { return whole_->has_loss(); }

  LossSum forward(const Batch& batch) override { return of_rows(batch, whole_->forward(part_of(batch))); }

  LossSum forward_backward(const Batch& batch, const Objective& objective) override {
    return of_rows(batch, whole_->forward_backward(part_of(batch), objective));
  }

 private:
  // Counts labels by whole rows: the labels of a conversation that a part of a row has need not add up to a number.
  LossSum of_rows(const Batch& batch, const LossSum& part) const {
    return {part.loss, sharing_.group.rank() == 0 && whole_->has_loss() ? count_valid_tokens(batch) : 0};
  }

  Batch part_of(const Batch& batch) const {
    const auto documents = documents_of(batch);
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

  // Returns the number of each token's document, int64 [B, T], all of them known.
  at::Tensor documents_of(const Batch& batch) const {
    const auto end = model_.document_end();
    if (!end && !batch.documents.defined()) return at::zeros_like(batch.tokens);
    return nn::known_documents(batch.tokens, end, batch.documents);
  }

  std::unique_ptr<ForwardBackward> whole_;
  LanguageModel& model_;
  parallel::RowSharing sharing_;
};

}  // namespace

std::unique_ptr<ForwardBackward> make_split_rows(std::unique_ptr<ForwardBackward> whole, LanguageModel& model,
                                                 const parallel::RowSharing& sharing) {
  return std::make_unique<SplitRows>(std::move(whole), model, sharing);
}

}  // namespace titan::train
