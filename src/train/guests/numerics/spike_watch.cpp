#include "train/guests/numerics/spike_watch.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace titan::train {
namespace {

constexpr std::int64_t kMostLines = 5;    // lines per report
constexpr std::size_t kMostSteps = 1024;  // steps that wait to be read

// Returns "the loss is 9.3, 12.4 standard deviations above the mean 3.2"; nullopt if it is not more than `sigma`
// deviations above.
std::optional<std::string> describe_row(const char* what, const at::Tensor& row, double sigma) {
  const double value = row[0].item<double>(), mean = row[1].item<double>(), deviation = row[2].item<double>();
  if (value <= mean + sigma * deviation) return std::nullopt;
  return fmt::format("the {} is {:.5g}, {:.1f} standard deviations above the mean {:.5g}", what, value,
                     (value - mean) / deviation, mean);
}

}  // namespace

// Keeps the window on the host if steps are judged there.
SpikeWatch::SpikeWatch(const config::Training& options, at::Device device, SumOverRanks sum, ReadSteps read_steps,
                       metrics::EventLog& events)
    : options_(options),
      skips_(options.on_spike == "skip"),
      sum_(std::move(sum)),
      read_steps_(read_steps),
      events_(events),
      window_(options.spike_window, options.spike_sigma, skips_ ? device : at::Device(at::kCPU)) {}

at::Tensor SpikeWatch::before_update(const StepView& step) {
  const StepOutput& output = step.output;
  Seen seen{.step = step.number, .loss = output.loss, .norm = output.grad_norm};
  if (!skips_) {
    seen_.push_back(std::move(seen));
    return {};
  }
  auto loss = output.loss.to(at::kFloat).clone();
  sum_(loss);
  seen.judged = judge(loss, output.grad_norm);
  seen_.push_back(seen);
  return seen.judged[0].to(output.grad_norm.device(), at::kFloat);
}

Verdict SpikeWatch::after_step(const StepView& step) {
  if (seen_.empty() || (!read_steps_.contains(step) && seen_.size() < kMostSteps)) return Verdict::go_on();
  const auto judged = read();
  if (speaks_for_all()) report(judged);
  seen_.clear();
  return Verdict::go_on();
}

at::Tensor SpikeWatch::judge(const at::Tensor& loss, const at::Tensor& norm) {
  const auto judgement = window_.judge(loss, norm);
  return at::cat({judgement.is_spike.to(at::kDouble).view({1}), judgement.numbers.flatten()});
}

// Returns the judgments of the steps seen, on the host, float64 [steps, 7]. Collective with "warn".
at::Tensor SpikeWatch::read() {
  std::vector<at::Tensor> judged, losses, norms;
  for (const auto& seen : seen_) {
    judged.push_back(seen.judged);
    losses.push_back(seen.loss);
    norms.push_back(seen.norm);
  }
  if (skips_) return at::stack(judged).cpu();
  auto sums = at::stack(losses).to(at::kCPU, at::kFloat);
  sum_(sums);
  const auto norms_there = at::stack(norms).to(at::kFloat).cpu();
  for (std::int64_t i = 0; i < sums.size(0); ++i) judged[static_cast<std::size_t>(i)] = judge(sums[i], norms_there[i]);
  return at::stack(judged);
}

void SpikeWatch::report(const at::Tensor& judged) const {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const auto row = judged[static_cast<std::int64_t>(i)];
    if (row[0].item<double>() == 0) continue;
    const auto numbers = row.slice(0, 1).view({2, 3});
    std::vector<std::string> parts;
    const auto add = [&](const char* what, std::int64_t which) {
      if (auto part = describe_row(what, numbers[which], options_.spike_sigma)) parts.push_back(*part);
    };
    add("loss", SpikeWindow::kLoss);
    add("norm of the gradients", SpikeWindow::kNorm);
    events_.append("spike", seen_[i].step, {{"what", join(parts, ", and ")}});
    if (++count > kMostLines) continue;
    spdlog::warn("step {}: a spike: {} of up to {} steps before (training.spike_sigma = {:g}){}", seen_[i].step,
                 join(parts, ", and "), options_.spike_window, options_.spike_sigma,
                 skips_ ? "; its update was left out, as training.on_spike = \"skip\" asks" : "");
  }
  if (count > kMostLines) spdlog::warn("and {} more spikes up to step {}", count - kMostLines, seen_.back().step);
}

void SpikeWatch::restore(const Value* saved) {
  seen_.clear();
  if (saved) {
    window_.restore(*saved, saved_key());
  } else {
    window_.clear();
  }
}

}  // namespace titan::train
