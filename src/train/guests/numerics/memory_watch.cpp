#include "train/guests/numerics/memory_watch.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/log.h"
#include "base/process/phase.h"

namespace titan::train {

// Something was loaded before this step, or drawn, or the run went back, unless the last step is the one seen last.
void MemoryWatch::before_step() {
  if (noted_ && noted_->step != parts_.finished_steps) noted_.reset();
  if (parts_.updates && last_updated_ != parts_.finished_steps) parts_.updates->reset();
  if (!is_checked(parts_.finished_steps + 1)) return;
  if (!noted_) note(parts_.finished_steps);
  if (parts_.gathers) parts_.gathers->begin();
}

void MemoryWatch::note(std::int64_t finished_steps) {
  const PhaseScope phase(Phase::kLog);
  std::vector<bool> covered;
  const auto leaves_out = [&](std::size_t index) {
    covered.push_back(parts_.updates && parts_.updates->covers(index));
    return covered.back();
  };
  // Before the first update the optimizer may not have allocated its state, and its memory serves the first backward.
  auto hashes = parts_.check.hash(/*with_state=*/finished_steps > 0, leaves_out);
  noted_ = {finished_steps, std::move(hashes), std::move(covered)};
}

// Returns the hashes of what note() has hashed.
MemoryHashes MemoryWatch::hash_again() {
  return parts_.check.hash(noted_->hashes.has_state, [this](std::size_t index) { return noted_->covered.at(index); });
}

// A save in progress has read the same memory by then, so that it is watched as long as it is read.
at::Tensor MemoryWatch::before_update(const StepView& /*step*/) {
  if (!noted_) return {};
  const PhaseScope phase(Phase::kLog);
  if (parts_.gathers) changed_in_step_ = parts_.gathers->end();
  parts_.checkpointer.wait_staged();
  now_ = hash_again();
  return {};
}

Verdict MemoryWatch::after_step(const StepView& step) {
  const PhaseScope phase(Phase::kLog);
  const bool is_compared = parts_.updates || now_;  // the same on all ranks
  auto changed = std::exchange(changed_in_step_, {});
  const auto add = [&](const std::vector<std::string>& more) {
    changed.insert(changed.begin(), more.begin(), more.end());
  };
  if (now_) add(changed_between(noted_->hashes, *std::exchange(now_, std::nullopt)));
  if (parts_.updates) add(parts_.updates->changed_before_update());
  last_updated_ = step.number;
  if (is_compared && is_any(!changed.empty())) return handle(step, gather_changes(changed, parts_.world));
  noted_.reset();
  if (is_checked(step.number + 1)) note(step.number);
  return Verdict::go_on();
}

// Returns true on all ranks if it is true on one.
bool MemoryWatch::is_any(bool mine) const {
  auto any = at::full({1}, std::int64_t{mine}, at::kLong);
  parts_.world.all_reduce(any, dist::ReduceOp::kMax).wait();
  return any.item<std::int64_t>() > 0;
}

// The checkpoint of the last step was written while the bit changed, so it may hold the changed one. Those before it
// were saved before what was found unchanged since.
bool MemoryWatch::accepts(std::int64_t step) {
  if (step != last_updated_ - 1) return true;
  const bool is_changed = noted_ && !changed_between(noted_->hashes, hash_again()).empty();
  return !is_any(is_changed || (parts_.updates && !parts_.updates->changed_in_restored().empty()));
}

Verdict MemoryWatch::handle(const StepView& step, const MemoryReport& report) {
  const std::string what = describe(report);
  const auto ranks = report.ranks();
  const bool is_again = std::ranges::any_of(ranks, [&](int rank) { return seen_.contains(rank); });
  seen_.insert(ranks.begin(), ranks.end());
  parts_.events.append("memory_fault", step.number, {{"what", what}, {"ranks", ranks}});
  parts_.checkpointer.finish();
  if (speaks_for_all())
    spdlog::error(
        "step {}: bits in memory have changed that nothing wrote, after the update of step {} and before that of step "
        "{}: {}. This step is not saved",
        step.number, step.number - 1, step.number, what);
  const bool is_back = parts_.checkpointer.saves() &&
                       parts_.run_again(step.number, [this](std::int64_t saved) { return accepts(saved); });
  noted_.reset();
  if (is_back && !is_again) return Verdict::rolled_back();
  if (speaks_for_all())
    spdlog::error(
        "the run ends here{}. The same command {}. Test the memory of that machine, or replace it",
        is_again ? ", because the memory of one rank has changed a second time" : "",
        is_back ? "resumes from the checkpoint above" : "starts from the beginning: there is no good checkpoint");
  return Verdict::ends(RunEnd::kDrifted);
}

}  // namespace titan::train
