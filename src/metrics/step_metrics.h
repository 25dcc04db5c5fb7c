// What is reported about one logged step and about one validation pass, and the interface of those who report it.
//
// Each number is described here and nowhere else: its field in the struct, and its row in for_each_metric(), from which
// sinks take its name. Who has the number sets the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace titan::metrics {

struct StepMetrics {
  // Set by the caller of MetricsProcessor::log(), reduced over ranks where all ranks are meant.
  std::int64_t step = 0;                  // 1-based
  double loss = 0.0;                      // mean over all tokens of the global batch
  double max_loss = 0.0;                  // largest mean over the tokens of one rank
  double grad_norm = 0.0;                 // before clipping
  double lr = 0.0;                        // learning rate used for this step
  std::int64_t tokens_seen = 0;           // by all ranks, since the first step of the training
  std::optional<double> grad_scale = {};  // float16 only: what the loss was multiplied by for the gradients
  // Records that were skipped since this process started, by all ranks; with training.on_bad_record = "skip" only.
  std::optional<std::int64_t> bad_records = {};

  // Measured by MetricsProcessor.
  // Of one rank, over all wall time since the last logged step: checkpoints and validation count, and on the first row
  // the start-up since the MetricsProcessor was made, as TorchTitan does. step_seconds has the steps alone.
  double tokens_per_second = 0.0;
  double tflops = 0.0;             // 1e12 model FLOP per second of one rank
  std::optional<double> mfu = {};  // percent of the device's peak; nothing when the peak is not known
  std::uint64_t memory_peak_bytes = 0;
  std::uint64_t memory_capacity_bytes = 0;                // not in metrics.jsonl
  double step_seconds = 0.0;                              // mean of the steps since the last logged one
  double data_seconds = 0.0;                              // the part of step_seconds spent waiting for batches
  double unix_time = 0.0;                                 // when the step ended
  std::optional<double> time_to_first_step_seconds = {};  // process start to the end of its first step; first row only
};

struct ValidationMetrics {
  // Set by the caller of MetricsProcessor::log_validation(), but for the perplexity.
  std::int64_t step = 0;
  double loss = 0.0;             // mean over the tokens that were looked at
  double perplexity = 0.0;       // e to the loss; computed by MetricsProcessor
  std::int64_t tokens = 0;       // labels that counted, of all ranks
  std::int64_t rank_tokens = 0;  // tokens that this rank looked at; not in validation.jsonl
  double seconds = 0.0;          // duration of the pass
  std::int64_t best_step = 0;    // the step with the lowest loss so far; 0: no loss was a number yet
  double best_loss = 0.0;        // its loss

  // Measured by MetricsProcessor.
  double tokens_per_second = 0.0;  // of one rank
  std::uint64_t memory_peak_bytes = 0;
  std::uint64_t memory_capacity_bytes = 0;  // not in validation.jsonl
  double unix_time = 0.0;
};

// How a number is called.
struct Metric {
  std::string_view name;              // its key in metrics.jsonl or validation.jsonl, unique there
  std::string_view tag = {};          // its name among TorchTitan's metrics; empty where TorchTitan does not have it
  std::string_view unit = {};         // of the value; empty for counts and plain numbers
  double tag_scale = 1.0;             // the value times this is in the unit that the tag names
  bool is_null_when_unknown = false;  // a row has the key then, with null; else it leaves out what is not known
};

inline constexpr double kGiBPerByte = 1.0 / (1024.0 * 1024.0 * 1024.0);

// Calls use(const Metric&, value) for every number, in the order of the keys of a row of metrics.jsonl. A value is an
// integer, a bool, a double, or a std::optional of these, which is empty where the number is not known.
template <typename Use>
void for_each_metric(const StepMetrics& m, Use&& use) {
  use(Metric{.name = "step"}, m.step);
  use(Metric{.name = "loss", .tag = "loss_metrics/global_avg_loss"}, m.loss);
  use(Metric{.name = "max_loss", .tag = "loss_metrics/global_max_loss"}, m.max_loss);
  use(Metric{.name = "grad_norm", .tag = "grad_norm"}, m.grad_norm);
  use(Metric{.name = "lr", .tag = "lr"}, m.lr);
  use(Metric{.name = "tokens_seen", .tag = "n_tokens_seen"}, m.tokens_seen);
  use(Metric{.name = "tokens_per_second", .tag = "throughput(tps)", .unit = "tokens/s"}, m.tokens_per_second);
  use(Metric{.name = "tflops", .tag = "tflops", .unit = "TFLOP/s"}, m.tflops);
  use(Metric{.name = "mfu", .tag = "mfu(%)", .unit = "%", .is_null_when_unknown = true}, m.mfu);
  use(Metric{.name = "memory_peak_bytes", .tag = "memory/max_reserved(GiB)", .unit = "bytes", .tag_scale = kGiBPerByte},
      m.memory_peak_bytes);
  use(Metric{.name = "step_seconds", .tag = "time_metrics/end_to_end(s)", .unit = "s"}, m.step_seconds);
  use(Metric{.name = "data_seconds", .tag = "time_metrics/data_loading(s)", .unit = "s"}, m.data_seconds);
  use(Metric{.name = "unix_time", .unit = "s"}, m.unix_time);
  use(Metric{.name = "grad_scale"}, m.grad_scale);
  use(Metric{.name = "bad_records"}, m.bad_records);
  use(Metric{.name = "time_to_first_step_seconds", .unit = "s"}, m.time_to_first_step_seconds);
}

// The same for a row of validation.jsonl.
template <typename Use>
void for_each_metric(const ValidationMetrics& m, Use&& use) {
  use(Metric{.name = "step"}, m.step);
  use(Metric{.name = "loss", .tag = "validation_metrics/loss"}, m.loss);
  use(Metric{.name = "perplexity"}, m.perplexity);
  use(Metric{.name = "tokens"}, m.tokens);
  use(Metric{.name = "seconds", .unit = "s"}, m.seconds);
  use(Metric{.name = "is_best"}, m.best_step == m.step);
  use(Metric{.name = "best_step"}, m.best_step);
  use(Metric{.name = "best_loss"}, m.best_loss);
  use(Metric{.name = "tokens_per_second", .tag = "validation_metrics/throughput(tps)", .unit = "tokens/s"},
      m.tokens_per_second);
  use(Metric{.name = "memory_peak_bytes",
             .tag = "validation_metrics/memory/max_reserved(GiB)",
             .unit = "bytes",
             .tag_scale = kGiBPerByte},
      m.memory_peak_bytes);
  use(Metric{.name = "unix_time", .unit = "s"}, m.unix_time);
}

// Called from the training thread of the rank that reports.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void log(const StepMetrics& metrics) = 0;
  virtual void log_validation(const ValidationMetrics&) {}
  // After every step, logged or not, before log().
  virtual void on_step(std::int64_t /*step*/) {}
  // The run went back: what was said about steps after `finished_steps` does not count any more, they come again.
  virtual void roll_back(std::int64_t /*finished_steps*/) {}
};

}  // namespace titan::metrics
