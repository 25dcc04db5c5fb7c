// Measures the train loop: what a step cost, how many tokens it saw, and when to report it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/process/phase.h"
#include "metrics/process_stats.h"
#include "metrics/rows/evaluation_metrics.h"
#include "metrics/rows/step_metrics.h"

namespace titan::metrics {

struct MetricsOptions {
  std::int64_t log_freq = 10;               // metrics.log_freq; at least 1
  std::int64_t flops_per_token = 0;         // flops.h
  std::int64_t non_data_parallel_size = 1;  // cp * tp * pp: ranks that share one batch
  std::optional<double> peak_flops = {};    // peak of one rank's device
  MemoryProbe memory = process_memory;
  Clock now = std::chrono::steady_clock::now;
  std::function<double()> process_age = seconds_since_process_start;
  // Seconds in collectives since some fixed time; null if not known.
  std::function<double()> communication = {};
  std::function<std::array<double, kNumPhases>()> phases = [] { return phase_log().seconds(); };
};

// Measures and reports on every rank. Make it before the model is built (the first row's throughput includes the
// start-up). In a step call begin_step(), add_data() for every batch, end_step(step), and log() if should_log(step).
// Nothing here communicates. For the training thread, except show_progress().
class MetricsProcessor {
 public:
  // Throws ConfigError when log_freq is below 1.
  MetricsProcessor(MetricsOptions options, std::vector<std::unique_ptr<MetricsSink>> sinks);

  bool should_log(std::int64_t step) const { return step == 1 || step % options_.log_freq == 0; }

  void begin_step();
  // Passes progress to the sinks' on_progress(). From another thread, during the first step.
  void show_progress(std::int64_t step, const StepProgress& progress, double seconds);
  // Counts a batch of `num_tokens` tokens of this rank that took `seconds` to arrive.
  void add_data(std::int64_t num_tokens, double seconds);
  void end_step(std::int64_t step);

  // Adds what was measured here, reports, and starts the next interval. Call once after each step with should_log().
  void log(StepMetrics metrics);
  // Does the same after a validation pass, but the training interval continues.
  void log_validation(ValidationMetrics metrics);
  // Does the same after a pass over the tasks of evaluation.tasks.
  void log_evaluation(EvaluationMetrics metrics);
  // Continues the run after `finished_steps`; whoever restores the state sets tokens_seen. The steps past it count as
  // redone in time_spent(), each with the mean of this process's steps.
  void roll_back(std::int64_t finished_steps);
  // Reports the norms. Call after log() of the same step, if norms were asked for.
  void log_gradient_norms(std::int64_t step, std::span<const double> norms);
  // Looks whether the files of rows still are there. Call after the last row.
  void check_files() const;
  // Returns why the record of the run (metrics.jsonl) cannot be written any more; "" while it can, and on ranks that
  // write none. Whoever runs the steps must save, and end the run.
  const std::string& record_failure() const;
  // Returns the metrics of the last log(), with what it added.
  const std::optional<StepMetrics>& last() const { return last_; }

  // Tokens of this rank that are not in tokens_before() or, if that is not known, since the first step of the training.
  // Restored before the first step.
  std::int64_t tokens_seen() const { return tokens_seen_; }
  void set_tokens_seen(std::int64_t tokens) { tokens_seen_ = tokens; }
  // Tokens of all ranks in earlier starts, which may have had another number of ranks.
  std::int64_t tokens_before() const { return tokens_before_; }
  void set_tokens_before(std::int64_t tokens) { tokens_before_ = tokens; }

  // Returns where the time of the run went until now: in this process, and in earlier ones if known.
  TimeSpent time_spent() const;
  void set_earlier_time(const TimeSpent& earlier) { earlier_ = earlier; }

  // Setters for what is known only after the clock has started.
  void set_sinks(std::vector<std::unique_ptr<MetricsSink>> sinks) { sinks_ = std::move(sinks); }
  void set_peak_flops(double flops) { options_.peak_flops = flops; }
  bool has_peak_flops() const { return options_.peak_flops.has_value(); }

 private:
  MetricsOptions options_;
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
  std::int64_t tokens_seen_ = 0;
  std::int64_t tokens_before_ = 0;
  TimeSpent earlier_;
  std::int64_t last_step_ = 0, num_steps_ = 0;  // steps of this process, including rolled-back ones
  double redone_seconds_ = 0.0;                 // productive time of rolled-back steps
  std::optional<StepMetrics> last_;
  std::optional<double> first_step_seconds_;  // reset when it is reported
  bool first_step_ended_ = false;
  TimePoint step_begin_;
  double communication_at_begin_ = 0.0;
  // Since the last log():
  TimePoint interval_begin_;
  std::int64_t interval_tokens_ = 0;
  std::int64_t interval_steps_ = 0;
  double interval_step_seconds_ = 0.0;
  double interval_data_seconds_ = 0.0;
  double interval_comm_seconds_ = 0.0;
};

}  // namespace titan::metrics
