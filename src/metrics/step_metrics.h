// What is reported about one logged step, and the interface of those who report it.
#pragma once

#include <cstdint>
#include <optional>

namespace titan::metrics {

struct StepMetrics {
  std::int64_t step = 0;             // 1-based
  double loss = 0.0;                 // mean over all tokens of the global batch
  double max_loss = 0.0;             // largest mean over the tokens of one rank
  double grad_norm = 0.0;            // before clipping
  double lr = 0.0;                   // that this step used
  std::int64_t tokens_seen = 0;      // by all ranks, since the first step of the training
  std::optional<double> grad_scale;  // float16 only: what the loss was multiplied by for the gradients
  // Records that were skipped since this process started, by all ranks; with training.on_bad_record = "skip" only.
  std::optional<std::int64_t> bad_records;
  // Of one rank, over all wall time since the last logged step: checkpoints and validation count, and on the first row
  // the start-up since the MetricsProcessor was made, as TorchTitan does. step_seconds has the steps alone.
  double tokens_per_second = 0.0;
  double tflops = 0.0;        // 1e12 model FLOP per second of one rank
  std::optional<double> mfu;  // percent of the device's peak; nothing when the peak is not known
  std::uint64_t memory_peak_bytes = 0;
  std::uint64_t memory_capacity_bytes = 0;           // not in metrics.jsonl
  double step_seconds = 0.0;                         // mean of the steps since the last logged one
  double data_seconds = 0.0;                         // the part of step_seconds spent waiting for batches
  double unix_time = 0.0;                            // when the step ended
  std::optional<double> time_to_first_step_seconds;  // process start to the end of its first step; first row only
};

struct ValidationMetrics {
  std::int64_t step = 0;
  double loss = 0.0;               // mean over the tokens that were looked at
  double perplexity = 0.0;         // e to the loss
  std::int64_t tokens = 0;         // labels that counted, of all ranks
  double seconds = 0.0;            // that the pass took
  std::int64_t best_step = 0;      // the step with the lowest loss so far; 0: no loss was a number yet
  double best_loss = 0.0;          // its loss
  double tokens_per_second = 0.0;  // of one rank
  std::uint64_t memory_peak_bytes = 0;
  std::uint64_t memory_capacity_bytes = 0;
  double unix_time = 0.0;
};

// Called from the training thread of the rank that reports.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void log(const StepMetrics& metrics) = 0;
  virtual void log_validation(const ValidationMetrics&) {}
  // After every step, logged or not, before log().
  virtual void on_step(std::int64_t /*step*/) {}
};

}  // namespace titan::metrics
