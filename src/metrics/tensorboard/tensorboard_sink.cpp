#include "metrics/tensorboard/tensorboard_sink.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <type_traits>

#include "base/clock.h"
#include "metrics/rows/evaluation_metrics.h"

namespace titan::metrics::tensorboard {
namespace {

// Collects the metrics of for_each_metric() that have a tag and are known.
class ScalarMaker {
 public:
  explicit ScalarMaker(Scalars& scalars) : scalars_(scalars) { scalars_.clear(); }

  template <typename Number>
  void operator()(const Metric& metric, const Number& value) {
    if (!metric.tag.empty())
      scalars_.emplace_back(metric.tag, static_cast<float>(static_cast<double>(value) * metric.tag_scale));
  }
  template <typename Number>
  void operator()(const Metric& metric, const std::optional<Number>& value) {
    if (value) (*this)(metric, *value);
  }

 private:
  Scalars& scalars_;
};

}  // namespace

void TensorBoardSink::on_step(std::int64_t /*step*/) { begin(); }

void TensorBoardSink::begin() {
  if (file_) return;
  const std::string& end = options_.end_of_names;
  int num_cut = cut_events_after(options_.folder, options_.finished_steps, end);
  for (const auto& folder : options_.abandoned) num_cut += cut_events_after(folder, options_.finished_steps, end);
  if (num_cut > 0)
    spdlog::info("{}: cut off what {} event files of earlier starts have past step {}", options_.folder.string(),
                 num_cut, options_.finished_steps);
  const double now = unix_now();
  file_ = std::make_unique<EventFile>(options_.folder, now, end);
  file_->append(encoder_.restart({now, options_.finished_steps + 1}));
  if (options_.configuration.empty()) return;
  file_->append(
      encoder_.text({now, options_.finished_steps}, "config", "```toml\n" + options_.configuration + "```\n"));
}

template <typename Metrics>
void TensorBoardSink::write_scalars(const Metrics& metrics) {
  begin();
  for_each_metric(metrics, ScalarMaker(scalars_));
  last_unix_time_ = metrics.unix_time;
  file_->append(encoder_.scalars({metrics.unix_time, metrics.step}, scalars_));
}

void TensorBoardSink::log(const StepMetrics& metrics) { write_scalars(metrics); }

void TensorBoardSink::log_validation(const ValidationMetrics& metrics) { write_scalars(metrics); }

void TensorBoardSink::log_evaluation(const EvaluationMetrics& metrics) { write_scalars(metrics); }

void TensorBoardSink::log_gradient_norms(std::int64_t step, std::span<const double> norms) {
  begin();
  finite_.clear();
  std::ranges::copy_if(norms, std::back_inserter(finite_), [](double norm) { return std::isfinite(norm); });
  if (finite_.empty()) return;
  fill_histogram(finite_, histogram_);
  file_->append(encoder_.histogram({last_unix_time_, step}, "grad_norm_by_layer", histogram_));
}

// Cuts the file like those of earlier starts, and continues in a new one.
void TensorBoardSink::roll_back(std::int64_t finished_steps) {
  file_.reset();
  options_.finished_steps = finished_steps;
  begin();
}

void fill_histogram(std::span<const double> values, Histogram& made) {
  constexpr int kBuckets = 30;
  made.min = *std::ranges::min_element(values);
  made.max = *std::ranges::max_element(values);
  made.count = static_cast<double>(values.size());
  const double width = (made.max - made.min) / kBuckets;
  const int num_buckets = width > 0 ? kBuckets : 1;
  made.bucket_limits.clear();
  for (int i = 1; i <= num_buckets; ++i)
    made.bucket_limits.push_back(i == num_buckets ? made.max : made.min + i * width);
  made.counts.assign(static_cast<std::size_t>(num_buckets), 0.0);
  made.sum = made.sum_of_squares = 0;
  for (const double value : values) {
    made.sum += value;
    made.sum_of_squares += value * value;
    const auto bucket = std::ranges::lower_bound(made.bucket_limits, value) - made.bucket_limits.begin();
    ++made.counts[static_cast<std::size_t>(bucket)];
  }
}

}  // namespace titan::metrics::tensorboard
