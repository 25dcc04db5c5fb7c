#include "train/guests/numerics/spike_window.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace titan::train {
namespace {

constexpr double kLeastDeviation = 1e-3;  // fraction of the mean

Value list_of(const at::Tensor& row, std::int64_t count) {
  std::vector<Value> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.emplace_back(row[i].item<double>());
  return Value::list(std::move(numbers));
}

}  // namespace

SpikeWindow::SpikeWindow(std::int64_t size, double sigma, at::Device device) : size_(size), sigma_(sigma) {
  const auto whole = at::TensorOptions().dtype(at::kLong).device(device);
  places_ = at::arange(size, whole);
  past_ = at::zeros({2, size}, whole.dtype(at::kDouble));
  count_ = at::zeros({}, whole);
}

SpikeWindow::Judgement SpikeWindow::judge(const at::Tensor& loss, const at::Tensor& norm) {
  const at::NoGradGuard no_grad;
  const auto values = at::stack({loss.to(past_.device()), norm.to(past_.device())}).to(at::kDouble);
  const auto filled = at::clamp_max(count_, size_);
  const auto in_use = places_ < filled;
  const auto num = at::clamp_min(filled, 2).to(at::kDouble);  // with fewer than two, the deviation is not used
  const auto mean = at::where(in_use, past_, 0.0).sum(1) / num;
  const auto away = at::where(in_use, past_ - mean.unsqueeze(1), 0.0);
  const auto deviation = at::maximum((away.square().sum(1) / (num - 1)).sqrt(), kLeastDeviation * mean.abs());
  const auto limit = mean + sigma_ * deviation;

  const auto is_known = filled >= std::max<std::int64_t>(2, size_ / 2);
  const auto is_finite = values.isfinite().all();
  const auto is_spike = (values > limit).any().logical_and(is_finite).logical_and(is_known);
  const auto taken = at::where(is_known, at::minimum(values, limit), values);
  const auto is_place = (places_ == count_.remainder(size_)).logical_and(is_finite);
  past_ = at::where(is_place, taken.unsqueeze(1), past_);
  count_ = count_ + is_finite;
  return {is_spike.to(at::kFloat), at::stack({values, mean, deviation}, 1)};
}

Value SpikeWindow::value() const {
  const auto past = past_.cpu();
  const auto count = count_.item<std::int64_t>(), filled = std::min(count, size_);
  return Value::dict({{"losses", list_of(past[kLoss], filled)},
                      {"norms", list_of(past[kNorm], filled)},
                      {"next", filled < size_ ? filled : count % size_}});
}

void SpikeWindow::restore(const Value& saved, const std::string& what) {
  const auto& dict = saved.as_dict(what);
  const auto& losses = dict.at("losses", what).as_sequence(what + ".losses");
  const auto& norms = dict.at("norms", what).as_sequence(what + ".norms");
  const auto next = dict.at("next", what).as_int(what + ".next");
  const auto filled = std::ssize(losses);
  if (std::ssize(norms) != filled || next < 0 || next > filled)
    throw CheckpointError(what + " has " + std::to_string(filled) + " losses, " + std::to_string(norms.size()) +
                          " norms and goes on at " + std::to_string(next) + ": this is not a window of steps");
  // Keeps the same places, so that sums round the same. A window of another size gets the newest steps, from the first
  // place on.
  const bool is_full = filled == size_, was_growing = next == filled && filled < size_;
  const auto kept = std::min(filled, size_);
  const auto oldest = is_full || was_growing ? 0 : next + filled - kept;
  auto past = at::zeros({2, size_}, at::kDouble);
  for (std::int64_t i = 0; i < kept; ++i) {
    const auto from = static_cast<std::size_t>((oldest + i) % filled);
    past[kLoss][i].fill_(losses[from].as_double(what + ".losses"));
    past[kNorm][i].fill_(norms[from].as_double(what + ".norms"));
  }
  past_.copy_(past);
  count_.fill_(is_full ? size_ + next % size_ : kept);
}

void SpikeWindow::clear() {
  past_.zero_();
  count_.zero_();
}

}  // namespace titan::train
