#include "train/guests/validator.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "nn/ops/cross_entropy.h"
#include "parallel/fsdp/fully_shard.h"
#include "train/guests/evaluation.h"
#include "train/guests/stop_vote.h"

namespace titan::train {
namespace {

constexpr std::int64_t kWholeSet = -1;  // value of validation.steps

}  // namespace

Validator::Validator(const config::Validation& options, std::unique_ptr<BatchSource> source, LanguageModel& model,
                     ForwardBackward& forward_backward, dist::ProcessGroup& world, const dist::Meshes& meshes,
                     metrics::MetricsProcessor& metrics, std::int64_t last_step)
    : options_(options),
      source_(std::move(source)),
      model_(model),
      forward_backward_(forward_backward),
      world_(world),
      meshes_(meshes),
      metrics_(metrics),
      last_step_(last_step) {
  if (options_.steps == kWholeSet && !source_->next()) throw_too_short();  // fail now, not after hours of training
}

void Validator::throw_too_short() const {
  throw DataError("validation.dataset_path = \"" + options_.dataset_path.value_or("") +
                  "\" has fewer tokens than one window of validation.seq_len + 1 = " +
                  std::to_string(options_.seq_len + 1) + "; use more data or a smaller validation.seq_len");
}

bool Validator::is_due(std::int64_t step) const {
  return step == 1 || step % options_.freq == 0 || (options_.at_last_step && step == last_step_);
}

bool Validator::run_if_due(std::int64_t step) {
  if (!is_due(step)) return false;
  const auto begin = std::chrono::steady_clock::now();
  const auto totals = pass();
  if (!totals) {
    spdlog::info("validation after step {} was cut short by a signal", step);
    return false;
  }
  report(step, *totals, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return true;
}

std::optional<Validator::Totals> Validator::pass() {
  const Evaluation evaluation(model_);
  Totals totals;
  auto loss = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(meshes_.batch.device()));
  source_->restart();
  bool stop = false;
  for (std::int64_t i = 0; !stop; ++i) {
    const auto batch = next_batch(i);
    if (!batch) break;
    totals.rank_tokens += batch->tokens.numel();
    const LossSum sum = forward_backward_.forward(*batch);
    totals.tokens += sum.labels;
    loss += sum.loss;
    stop = some_rank_must_stop(world_);
  }
  fsdp::reshard(model_, /*recurse=*/true);
  if (stop) return std::nullopt;
  auto sums = at::tensor({loss.item<double>(), static_cast<double>(totals.tokens)}, at::kDouble);
  meshes_.loss.group().all_reduce(sums, dist::ReduceOp::kSum).wait();
  totals.loss = sums[0].item<double>();
  totals.tokens = std::llround(sums[1].item<double>());
  return totals;
}

std::optional<Batch> Validator::next_batch(std::int64_t index) {
  if (options_.steps != kWholeSet && index >= options_.steps) return std::nullopt;
  auto batch = source_->next();
  if (options_.steps != kWholeSet) {
    if (!batch) throw DataError("the data of validation.dataset ended; it must not end with validation.steps above 0");
    return batch;
  }
  if (batch) return rows_of_this_rank(*batch);
  if (index > 0) return std::nullopt;
  throw_too_short();
}

Batch Validator::rows_of_this_rank(const Batch& all) const {
  const auto rows = all.tokens.size(0);
  const auto begin = std::min(rows, meshes_.batch.group().rank() * options_.local_batch_size);
  const auto count = std::min(rows - begin, options_.local_batch_size);
  const auto part = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, begin, count) : tensor;
  };
  if (count > 0) return {part(all.tokens), part(all.labels), part(all.documents), part(all.labels_of_sample)};
  const auto row = all.tokens.narrow(0, 0, 1);
  return {row, at::full_like(row, nn::kIgnoreIndex)};
}

void Validator::report(std::int64_t step, const Totals& totals, double seconds) {
  metrics::ValidationMetrics result{.step = step,
                                    .loss = totals.loss / static_cast<double>(totals.tokens),
                                    .tokens = totals.tokens,
                                    .rank_tokens = totals.rank_tokens,
                                    .seconds = seconds,
                                    .best_step = 0,
                                    .best_loss = std::numeric_limits<double>::quiet_NaN()};
  {
    const std::lock_guard lock(mutex_);
    if (std::isfinite(result.loss)) losses_[step] = result.loss;
    for (const auto& [past_step, loss] : losses_) {
      if (result.best_step > 0 && loss >= result.best_loss) continue;
      result.best_step = past_step;
      result.best_loss = loss;
    }
  }
  metrics_.log_validation(result);
}

void Validator::restore(const std::map<std::int64_t, double>& losses) {
  const std::lock_guard lock(mutex_);
  last_restored_ = losses.empty() ? 0 : losses.rbegin()->first;
  losses_.clear();
  for (const auto& [step, loss] : losses)
    if (std::isfinite(loss)) losses_[step] = loss;
}

// Asks all ranks, since the folder with the rows may exist on one node only.
bool Validator::owes(std::int64_t step) const {
  if (step == 0 || !is_due(step)) return false;
  auto known = at::full({1}, std::int64_t{last_restored_ >= step}, at::TensorOptions().dtype(at::kLong));
  world_.all_reduce(known, dist::ReduceOp::kSum).wait();
  return known.item<std::int64_t>() == 0;
}

void Validator::forget_after(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  losses_.erase(losses_.upper_bound(step), losses_.end());
}

std::optional<int> Validator::best_of(const std::vector<int>& steps) const {
  const std::lock_guard lock(mutex_);
  std::optional<int> best;
  for (const int step : steps) {
    const auto found = losses_.find(step);
    if (found != losses_.end() && (!best || found->second < losses_.at(*best))) best = step;
  }
  return best;
}

}  // namespace titan::train
