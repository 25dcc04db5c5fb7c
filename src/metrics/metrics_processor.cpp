#include "metrics/metrics_processor.h"

#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"

namespace titan::metrics {

MetricsProcessor::MetricsProcessor(MetricsOptions options, std::vector<std::unique_ptr<MetricsSink>> sinks)
    : options_(std::move(options)),
      sinks_(std::move(sinks)),
      step_begin_(options_.now()),
      interval_begin_(step_begin_) {
  if (options_.log_freq < 1) {
    throw ConfigError("metrics.log_freq must be 1 or more; found " + std::to_string(options_.log_freq));
  }
}

void MetricsProcessor::begin_step() {
  step_begin_ = options_.now();
  if (options_.communication) communication_at_begin_ = options_.communication();
}

void MetricsProcessor::show_progress(std::int64_t step, const StepProgress& progress, double seconds) {
  for (const auto& sink : sinks_) sink->on_progress(step, progress, seconds);
}

void MetricsProcessor::add_data(std::int64_t num_tokens, double data_seconds) {
  tokens_seen_ += num_tokens;
  interval_tokens_ += num_tokens;
  interval_data_seconds_ += data_seconds;
}

void MetricsProcessor::end_step(std::int64_t step) {
  ++interval_steps_;
  interval_step_seconds_ += seconds_between(step_begin_, options_.now());
  if (options_.communication) interval_comm_seconds_ += options_.communication() - communication_at_begin_;
  if (!first_step_ended_) first_step_seconds_ = options_.process_age();
  first_step_ended_ = true;
  last_step_ = step;
  ++num_steps_;
  for (const auto& sink : sinks_) sink->on_step(step);
}

void MetricsProcessor::log(StepMetrics m) {
  TITAN_CHECK(interval_steps_ > 0, "log() without a step since the last one");
  const auto now = options_.now();
  const auto num_steps = static_cast<double>(interval_steps_);

  const double seconds = seconds_between(interval_begin_, now);
  m.tokens_per_second =
      static_cast<double>(interval_tokens_) / (seconds * static_cast<double>(options_.non_data_parallel_size));
  const double flops = static_cast<double>(options_.flops_per_token) * m.tokens_per_second;
  m.tflops = flops / 1e12;
  if (options_.peak_flops) m.mfu = 100.0 * flops / *options_.peak_flops;
  m.memory = options_.memory();
  m.step_seconds = interval_step_seconds_ / num_steps;
  m.data_seconds = interval_data_seconds_ / num_steps;
  if (options_.communication) m.comm_seconds = interval_comm_seconds_ / num_steps;
  m.data_percent = seconds > 0 ? 100.0 * interval_data_seconds_ / seconds : 0.0;
  m.unix_time = unix_now();
  m.time_to_first_step_seconds = std::exchange(first_step_seconds_, std::nullopt);
  m.time_spent = time_spent();
  for (const auto& sink : sinks_) sink->log(m);
  last_ = m;

  interval_begin_ = options_.now();
  interval_tokens_ = 0;
  interval_steps_ = 0;
  interval_step_seconds_ = 0.0;
  interval_data_seconds_ = 0.0;
  interval_comm_seconds_ = 0.0;
}

void MetricsProcessor::log_validation(ValidationMetrics m) {
  m.perplexity = std::exp(m.loss);
  m.tokens_per_second =
      static_cast<double>(m.rank_tokens) / (m.seconds * static_cast<double>(options_.non_data_parallel_size));
  m.memory = options_.memory();
  m.unix_time = unix_now();
  for (const auto& sink : sinks_) sink->log_validation(m);
}

void MetricsProcessor::log_evaluation(EvaluationMetrics m) {
  m.unix_time = unix_now();
  for (const auto& sink : sinks_) sink->log_evaluation(m);
}

void MetricsProcessor::roll_back(std::int64_t finished_steps) {
  if (num_steps_ > 0) {
    const double productive = time_spent_in(options_.phases(), options_.process_age())[TimeCause::kProductive];
    redone_seconds_ += productive * static_cast<double>(last_step_ - finished_steps) / static_cast<double>(num_steps_);
  }
  last_step_ = finished_steps;
  for (const auto& sink : sinks_) sink->roll_back(finished_steps);
}

void MetricsProcessor::log_gradient_norms(std::int64_t step, std::span<const double> norms) {
  for (const auto& sink : sinks_) sink->log_gradient_norms(step, norms);
}

void MetricsProcessor::check_files() const {
  for (const auto& sink : sinks_) sink->check();
}

const std::string& MetricsProcessor::record_failure() const {
  static const std::string kNone;
  for (const auto& sink : sinks_)
    if (!sink->failure().empty()) return sink->failure();
  return kNone;
}

TimeSpent MetricsProcessor::time_spent() const {
  TimeSpent spent = time_spent_in(options_.phases(), options_.process_age());
  spent[TimeCause::kProductive] -= redone_seconds_;
  spent[TimeCause::kRedone] += redone_seconds_;
  return spent += earlier_;
}

}  // namespace titan::metrics
