#include "train/guests/numerics/divergence_watch.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/text.h"

namespace titan::train {
namespace {

constexpr std::int64_t kMostInARow = 10;  // skipped steps in a row that end the run
constexpr std::size_t kMostRecent = 64;   // steps whose batches are kept
// An update by AdamW is at most some ten times the learning rate: with a rate below this one, weights grow for many
// steps before they overflow.
constexpr double kHighestRate = 1000;

}  // namespace

DivergenceWatch::DivergenceWatch(Parts parts) : parts_(std::move(parts)) {}

// Judges the norm over all ranks, so all ranks decide alike.
at::Tensor DivergenceWatch::before_update(const StepView& step) {
  if (first_step_ == 0) first_step_ = step.number;
  if (!parts_.judges_norm || has_warned_) return {};
  return parts_.norm_is_on_host ? veto_on_host(step.number, step.input, step.output.grad_norm)
                                : veto_on_device(step.number, step.input, step.output.grad_norm);
}

at::Tensor DivergenceWatch::veto_on_host(std::int64_t step, const StepInput& input, const at::Tensor& norm) {
  const auto value = norm.item<float>();
  if (std::isfinite(value)) {
    counts_.in_a_row = 0;
    return {};
  }
  const auto in_a_row = counts_.in_a_row + 1;
  counts_ = {.first = step, .in_a_row = in_a_row, .longest = in_a_row, .number = 1};
  const auto report = parts_.locator.locate(input.microbatches, /*with_gradients=*/true);
  trouble_ = {step, fmt::format("the norm of the gradients is {}", value), describe(report),
              ranks_of_spoilt_weights(report)};
  return is("warn") ? at::Tensor() : at::ones({}, norm.options());
}

at::Tensor DivergenceWatch::veto_on_device(std::int64_t step, const StepInput& input, const at::Tensor& norm) {
  if (is("warn")) return {};
  const at::NoGradGuard no_grad;
  if (!on_device_.defined()) forget();
  if (on_device_.device() != norm.device()) on_device_ = on_device_.to(norm.device());
  recent_.emplace_back(step, input.microbatches);
  if (recent_.size() > kMostRecent) recent_.pop_front();
  const auto bad = norm.isfinite().logical_not();
  const auto counts = on_device_.unbind();
  const auto first = at::where(bad.logical_and(counts[0] == 0), step, counts[0]);
  const auto in_a_row = (counts[1] + 1) * bad;
  on_device_ = at::stack({first, in_a_row, at::maximum(counts[2], in_a_row), counts[3] + bad});
  return (is("skip") ? bad : first != 0).to(at::kFloat);
}

Verdict DivergenceWatch::after_step(const StepView& step) {
  if (!parts_.norm_is_on_host && parts_.judges_norm && parts_.read_steps.contains(step)) read_device(step);
  if (trouble_.step == 0) {
    check_loss(step);
    return parts_.read_steps.is_saved(step) ? check_weights(step) : Verdict::go_on();
  }
  const auto end = act(step);
  trouble_ = {};
  return end;
}

void DivergenceWatch::read_device(const StepView& step) {
  if (is("warn")) {
    if (has_warned_) return;
    const auto norm = step.output.grad_norm.item<float>();
    if (std::isfinite(norm)) return;
    trouble_ = {step.number, fmt::format("the norm of the gradients is {}", norm),
                "after its update: " + describe(parts_.locator.locate(step.input.microbatches, false)), ""};
    return;
  }
  if (!on_device_.defined()) return;
  const auto counts = on_device_.cpu();
  const auto* numbers = counts.const_data_ptr<std::int64_t>();
  counts_ = {.first = numbers[0], .in_a_row = numbers[1], .longest = numbers[2], .number = numbers[3]};
  if (counts_.first > 0) locate_on_device(step);
  forget();
}

// Resets the counts, except for the current number of steps in a row.
void DivergenceWatch::forget() {
  recent_.clear();
  if (parts_.norm_is_on_host) return;
  const auto device = on_device_.defined() ? on_device_.device() : at::Device(at::kCPU);
  on_device_ = at::tensor({std::int64_t{0}, counts_.in_a_row, counts_.in_a_row, std::int64_t{0}}, at::kLong).to(device);
}

// Locates the cause in the first bad step. Its gradients still exist only if it is the step `now`.
void DivergenceWatch::locate_on_device(const StepView& now) {
  trouble_ = {counts_.first, "the norm of the gradients is not finite", "", ""};
  const auto found = std::ranges::find(recent_, counts_.first, [](const auto& recent) { return recent.first; });
  if (found == recent_.end()) {
    trouble_.where = fmt::format("its batch is not kept any more at step {}", now.number);
    return;
  }
  const auto report = parts_.locator.locate(found->second, /*with_gradients=*/found->first == now.number);
  trouble_.where = describe(report);
  trouble_.spoilt = ranks_of_spoilt_weights(report);
}

// Returns the ranks that hold weights which no update can have made NaN or infinite; "" if there are none.
std::string DivergenceWatch::ranks_of_spoilt_weights(const NanReport& report) const {
  const bool are_spoilt = report.other_weights_are_small && parts_.config.optimizer.lr < kHighestRate;
  return are_spoilt ? join(report.ranks_of_weights, ", ") : "";
}

Verdict DivergenceWatch::act(const StepView& step) {
  parts_.events.append("nan", trouble_.step, {{"what", trouble_.what}, {"where", trouble_.where}});
  if (is("warn")) {
    warn();
    return Verdict::go_on();
  }
  if (is("skip")) return report_skipped(step);
  if (is("rollback")) return roll_back(step);
  return stop(step, "training.on_nan = \"warn\" would continue");
}

// Checks the weights: finite gradients can still make them non-finite.
Verdict DivergenceWatch::check_weights(const StepView& step) {
  if (!parts_.checkpointer.saves() || has_warned_ || parts_.locator.weights_are_finite()) return Verdict::go_on();
  const auto report = parts_.locator.locate(step.input.microbatches, /*with_gradients=*/false);
  trouble_ = {step.number, "the weights after the update are not finite", describe(report),
              ranks_of_spoilt_weights(report)};
  const auto end = is("skip") ? stop(step, "leaving steps out does not bring such weights back") : act(step);
  trouble_ = {};
  return end;
}

// Warns of an infinite or NaN loss with finite gradients. A logit of minus infinity causes it without harm to the
// weights.
void DivergenceWatch::check_loss(const StepView& step) {
  if (has_warned_ || has_warned_of_loss_ || !parts_.judges_norm || !parts_.log.is_logged(step.number)) return;
  const double loss = parts_.log.last_loss().value_or(0);
  if (std::isfinite(loss)) return;
  has_warned_of_loss_ = true;
  const auto report = parts_.locator.locate(step.input.microbatches, /*with_gradients=*/false);
  if (speaks_for_all())
    spdlog::warn(
        "step {}: the loss is {}, while the norm of the gradients is finite: training goes on; with the weights "
        "after the update, {}",
        step.number, loss, describe(report));
}

Verdict DivergenceWatch::report_skipped(const StepView& step) {
  total_skipped_ += counts_.number;
  if (speaks_for_all())
    spdlog::warn("{}. {} left out up to step {}, as training.on_nan = \"skip\" asks: {} since the start, {} in a row",
                 trouble_.text(),
                 counts_.number == 1 ? "Its update was" : std::to_string(counts_.number) + " updates were", step.number,
                 total_skipped_, counts_.in_a_row);
  if (counts_.longest < kMostInARow) return Verdict::go_on();
  return stop(step, fmt::format("training.on_nan = \"skip\" left out {} steps in a row", counts_.longest));
}

void DivergenceWatch::warn() {
  has_warned_ = true;
  parts_.checkpointer.mark_not_finite();
  if (!speaks_for_all()) return;
  spdlog::warn(
      "{}. The weights are no use from here on; training goes on and saves them, as training.on_nan = \"warn\" asks, "
      "and the newest checkpoint from before is kept",
      trouble_.text());
}

Verdict DivergenceWatch::roll_back(const StepView& step) {
  if (speaks_for_all()) spdlog::warn("{}", trouble_.text());
  const Trouble trouble = trouble_;
  if (parts_.roll_back(step.number)) return Verdict::rolled_back();
  trouble_ = trouble;
  return stop(step, "training.on_nan = \"rollback\" could not go back, as said above");
}

Verdict DivergenceWatch::stop(const StepView& step, const std::string& other) {
  if (!parts_.log.is_logged(step.number)) parts_.log.log(step);
  parts_.checkpointer.finish();  // its log lines come before the last one
  if (speaks_for_all()) {
    if (!is("skip") && !is("rollback")) spdlog::error("{}", trouble_.text());
    spdlog::error("{}", advice(step, other));
  }
  return Verdict::ends(RunEnd::kDiverged);
}

// Says what to do about a step that ends the run. `other`: what training.on_nan can do.
std::string DivergenceWatch::advice(const StepView& step, const std::string& other) const {
  if (trouble_.spoilt.empty())
    return fmt::format(
        "training has diverged: at step {} {}, with optimizer.lr = {} and a learning rate of {:.3g}. It stops here, "
        "and checkpoints are of steps before. Try a smaller optimizer.lr, more lr_scheduler.warmup_steps or a smaller "
        "training.max_norm; {}",
        trouble_.step, trouble_.what, parts_.config.optimizer.lr, step.output.lr, other);
  const std::string begin = fmt::format(
      "training stops: at step {} {}, and not because of the learning rate: weights of {} are NaN or infinite, while "
      "all others are small. ",
      trouble_.step, trouble_.what, trouble_.spoilt);
  if (trouble_.step == first_step_)
    return begin +
           "The checkpoint or the weights that this start has loaded hold them, or memory was damaged since. Start "
           "with another checkpoint (checkpoint.load_step) or other weights";
  return begin +
         "Memory was damaged, or the optimizer's state that this start has loaded. Checkpoints are of steps before, "
         "and the same command goes on from the newest one. If this comes back, test the memory of that machine or "
         "device";
}

Value DivergenceWatch::saved() const {
  return on_device_.defined() ? on_device_[1].item<std::int64_t>() : counts_.in_a_row;
}

void DivergenceWatch::restore(const Value* saved) {
  counts_ = {.in_a_row = saved ? saved->as_int(saved_key()) : 0};
  trouble_ = {};
  forget();
}

}  // namespace titan::train
