#include "train/guests/numerics/update_watch.h"

namespace titan::train {

UpdateWatch::UpdateWatch(optim::Optimizer& optimizer) : optimizer_(optimizer) {
  reset();
  optimizer_.sum_updates(&sums_);
}

UpdateWatch::~UpdateWatch() { optimizer_.sum_updates(nullptr); }

void UpdateWatch::reset() {
  sums_.assign(optimizer_.parameters().size(), {});
  wrote_ = before_ = sums_;
}

std::vector<std::string> UpdateWatch::changed_before_update() {
  std::vector<std::string> changed;
  before_ = wrote_;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    if (!sums_[i].defined()) continue;  // not updated: its tensors are still as the update before left them
    compare(i, wrote_[i], sums_[i][0], changed);
    wrote_[i] = sums_[i][1];
    sums_[i].reset();
  }
  return changed;
}

std::vector<std::string> UpdateWatch::changed_in_restored() {
  std::vector<std::string> changed;
  for (std::size_t i = 0; i < before_.size(); ++i)
    if (before_[i].defined()) compare(i, before_[i], optimizer_.sums_now(i), changed);
  return changed;
}

void UpdateWatch::compare(std::size_t index, const at::Tensor& before, const at::Tensor& now,
                          std::vector<std::string>& changed) {
  if (!before.defined() || before.equal(now)) return;
  const std::string& fqn = optimizer_.parameters()[index].fqn;
  std::vector<std::string> names = {fqn};
  for (const std::string& state : optimizer_.summed_state()) names.push_back(state + " of " + fqn);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (before[at].item<std::int64_t>() != now[at].item<std::int64_t>()) changed.push_back(names[i]);
  }
}

}  // namespace titan::train
