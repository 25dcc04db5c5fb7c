#include "train/parts/pipelined.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/process/step_work.h"
#include "nn/documents.h"
#include "nn/ops/cross_entropy.h"
#include "parallel/fsdp/fully_shard.h"
#include "parallel/pipeline/schedule_runner.h"
#include "trace/named_range.h"

namespace titan::train {
namespace {

// Sums the gradients of parameters that two ranks have. While it lives, the gradients before it are set aside, since
// they are sums over both ranks already.
class SharedGradients {
 public:
  SharedGradients(const std::vector<SharedParameter>& shared, dist::ProcessGroup& group)
      : shared_(shared), group_(group) {
    for (const auto& each : shared_) before_.push_back(std::exchange(grad_of(each), at::Tensor()));
  }

  // Both ranks add the same two numbers, so that their copies stay equal. Collective over the two ranks.
  void sum() {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < shared_.size(); ++i) {
      at::Tensor& grad = grad_of(shared_[i]);
      const auto theirs = at::empty_like(grad, grad.options(), at::MemoryFormat::Contiguous);
      const auto works = group_.exchange({{grad.contiguous(), shared_[i].peer}}, {{theirs, shared_[i].peer}});
      for (auto work : works) work.wait();
      grad = grad + theirs;
      if (before_[i].defined()) grad.add_(before_[i]);
    }
  }

 private:
  static at::Tensor& grad_of(const SharedParameter& shared) { return shared.parameter.tensor().mutable_grad(); }

  const std::vector<SharedParameter>& shared_;
  dist::ProcessGroup& group_;
  std::vector<at::Tensor> before_;
};

class Pipelined : public ForwardBackward, private parallel::PipelineStages {
 public:
  Pipelined(LanguageModel& model, at::Device device, LossFunction loss, PipelineParts parts)
      : model_(model),
        device_(device),
        loss_(std::move(loss)),
        parts_(std::move(parts)),
        own_stages_(pipeline::stages_of_rank(parts_.schedule, parts_.group.rank())),
        runner_(parts_.schedule, parts_.group, *this) {
    // The gradients of all microbatches are reduced once.
    fsdp::set_requires_gradient_sync(model_, false);
    if (parts_.keeps_gathered) fsdp::set_reshard_after_forward(model_, false);
    fsdp::set_reshard_after_backward(model_, false);
    fsdp::set_is_last_backward(model_, false);
  }

  std::int64_t num_parts() const override { return parts_.schedule.num_microbatches; }

  LossSum forward(const Batch& batch) override {
    const NamedRange range([] { return "forward"; });
    const auto own = num_microbatches(batch);
    const auto all = most_microbatches(own);
    begin(all > own ? with_rows(batch, all * parts_.rows) : batch, nullptr);
    runner_.run_forward(static_cast<int>(all));
    return end(batch);
  }

  LossSum forward_backward(const Batch& batch, const Objective& objective) override {
    const NamedRange range([] { return "forward and backward"; });
    SharedGradients shared(parts_.shared, parts_.group);
    begin(batch, &objective);
    runner_.run();
    fsdp::end_reductions(model_);
    fsdp::reshard(model_, /*recurse=*/true);
    shared.sum();
    return end(batch);
  }

 private:
  int last_stage() const { return parts_.schedule.num_stages() - 1; }
  bool has_last_stage() const { return own_stages_.back() == last_stage(); }

  std::int64_t num_microbatches(const Batch& batch) const {
    return (batch.tokens.size(0) + parts_.rows - 1) / parts_.rows;
  }

  // Returns for how many microbatches the ranks gather parameters: each gathers for its own, unless they stay gathered.
  std::int64_t most_microbatches(std::int64_t own) const {
    if (parts_.keeps_gathered || parts_.batches.size() == 1) return own;
    auto most = at::full({1}, own, at::kLong);
    parts_.batches.all_reduce(most, dist::ReduceOp::kMax).wait();
    return most.item<std::int64_t>();
  }

  // Returns the batch with copies of its first row, without labels, at its end.
  static Batch with_rows(const Batch& batch, std::int64_t rows) {
    const auto more = rows - batch.tokens.size(0);
    const auto longer = [&](const at::Tensor& tensor) {
      return tensor.defined() ? at::cat({tensor, tensor.narrow(0, 0, 1).expand({more, -1})}) : tensor;
    };
    auto labels = longer(batch.labels);
    labels.narrow(0, batch.tokens.size(0), more).fill_(nn::kIgnoreIndex);
    return {.tokens = longer(batch.tokens),
            .labels = labels,
            .documents = longer(batch.documents),
            .labels_of_sample = longer(batch.labels_of_sample),
            .positions = batch.positions};
  }

  void begin(const Batch& batch, const Objective* objective) {
    objective_ = objective;
    loss_sum_ = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(device_));
    microbatches_.clear();
    for (std::int64_t i = 0; i < num_microbatches(batch); ++i) microbatches_.push_back(microbatch_of(batch, i));
  }

  LossSum end(const Batch& batch) {
    microbatches_.clear();
    const bool counts = has_last_stage() && (!parts_.split || parts_.split->counts_labels());
    return {loss_sum_, counts ? count_valid_tokens(batch) : 0};
  }

  // Returns what this rank has of the rows of a microbatch, with the documents of all tokens where the model separates
  // them: only the first stage has tokens in which documents end.
  Batch microbatch_of(const Batch& batch, std::int64_t index) const {
    const auto begin = index * parts_.rows;
    const auto rows = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.narrow(0, begin, std::min(parts_.rows, tensor.size(0) - begin)) : tensor;
    };
    Batch out{.tokens = rows(batch.tokens),
              .labels = rows(batch.labels),
              .documents = rows(batch.documents),
              .labels_of_sample = rows(batch.labels_of_sample)};
    if (parts_.split) {
      out = parts_.split->part_of(out);
    } else if (model_.document_end() || out.documents.defined()) {
      out.documents = nn::known_documents(out.tokens, model_.document_end(), out.documents);
    }
    if (has_last_stage()) out.labels = out.labels.to(device_, /*non_blocking=*/true);
    return out;
  }

  // Returns the number of a stage among those of this rank.
  std::size_t index_of(int stage) const {
    return static_cast<std::size_t>(std::ranges::find(own_stages_, stage) - own_stages_.begin());
  }

  at::Tensor forward(int stage, int microbatch, const at::Tensor& input) override {
    Batch rows = microbatches_.at(static_cast<std::size_t>(microbatch));
    if (input.defined()) rows.tokens = input;
    rows.stage = at::scalar_tensor(static_cast<std::int64_t>(index_of(stage)), at::kLong);
    if (stage < last_stage())
      return model_(rows.tokens, at::Tensor(), rows.positions, rows.documents, at::Tensor(), rows.stage);
    const auto loss = loss_(model_, rows);
    loss_sum_ += loss.detach();
    return objective_ ? (*objective_)(loss) : loss;
  }

  at::Tensor empty_output(int microbatch) override {
    const auto& tokens = microbatches_.at(static_cast<std::size_t>(microbatch)).tokens;
    return at::empty({tokens.size(0), tokens.size(1) / parts_.tokens_per, parts_.dim},
                     at::TensorOptions().dtype(parts_.dtype).device(device_));
  }

  void unshard(int stage) override {
    for (auto* module : modules(stage)) fsdp::unshard(*module, /*async=*/true);
  }
  void reshard(int stage) override {
    for (auto* module : modules(stage)) fsdp::reshard(*module, /*recurse=*/true);
  }
  // The gradients are summed in the dtype of reductions, as after a whole backward.
  void keep_gradients(int stage) override {
    for (auto* module : modules(stage)) fsdp::keep_gradients(*module);
  }
  void reduce_gradients(int stage) override {
    for (auto* module : modules(stage)) fsdp::reduce_gradients(*module);
  }
  const std::vector<nn::Module*>& modules(int stage) const { return parts_.modules.at(index_of(stage)); }

  LanguageModel& model_;
  at::Device device_;
  LossFunction loss_;
  PipelineParts parts_;
  std::vector<int> own_stages_;
  parallel::ScheduleRunner runner_;
  const Objective* objective_ = nullptr;  // of the batch that runs; null in validation
  std::vector<Batch> microbatches_;
  at::Tensor loss_sum_;
};

}  // namespace

std::unique_ptr<ForwardBackward> make_pipelined(LanguageModel& model, at::Device device, LossFunction loss,
                                                PipelineParts parts) {
  return std::make_unique<Pipelined>(model, device, std::move(loss), std::move(parts));
}

}  // namespace titan::train
