// Metrics of one logged step and of one validation pass, and the interface of the sinks that report them.
//
// Each metric is described only here: its field in the struct, and its row in for_each_metric(), from which sinks take
// its name and docs/metrics.md its table. The code that knows the value sets the field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/process/step_work.h"
#include "metrics/rows/time_spent.h"

namespace titan::metrics {

// Memory of one rank. On a GPU it is that of the caching allocator, with peaks since the last row; on CPU both peaks
// are the largest resident set of the process so far, and an allocation that fails ends the run.
struct MemoryUsage {
  std::uint64_t peak_bytes = 0;         // reserved from the device
  std::uint64_t capacity_bytes = 0;     // memory of the device; not in rows
  std::uint64_t active_peak_bytes = 0;  // used by tensors
  std::int64_t num_alloc_retries = 0;   // allocations retried after freeing cached memory, since the process started
  std::int64_t num_ooms = 0;            // failed allocations, since the process started

  double percent(std::uint64_t bytes) const {
    return capacity_bytes > 0 ? 100.0 * static_cast<double>(bytes) / static_cast<double>(capacity_bytes) : 0.0;
  }
};

struct StepMetrics {
  // Set by the caller of MetricsProcessor::log(), already reduced over ranks if the value is for all ranks.
  std::int64_t step = 0;                  // 1-based
  double loss = 0.0;                      // mean over all tokens of the global batch
  double max_loss = 0.0;                  // largest mean over the tokens of one rank
  double grad_norm = 0.0;                 // before clipping
  double lr = 0.0;                        // learning rate used for this step
  std::int64_t tokens_seen = 0;           // by all ranks, since the first step of the training
  std::optional<double> grad_scale = {};  // float16 only: the factor of the loss for the gradients
  // Records skipped by all ranks since this process started; only with training.on_bad_record = "skip".
  std::optional<std::int64_t> bad_records = {};

  // Measured by MetricsProcessor.
  // Throughput of one rank, over all wall time since the last logged step, as in TorchTitan: includes checkpoints and
  // validation, and in the first row the start-up since the MetricsProcessor was made. step_seconds has only the steps.
  double tokens_per_second = 0.0;
  double tflops = 0.0;             // 1e12 model FLOP per second of one rank
  std::optional<double> mfu = {};  // percent of the device's peak; nullopt if the peak is not known
  MemoryUsage memory = {};
  double step_seconds = 0.0;                              // mean of the steps since the last logged one
  double data_seconds = 0.0;                              // the part of step_seconds spent waiting for batches
  std::optional<double> comm_seconds = {};                // the part of step_seconds in collectives; on CPU only
  double data_percent = 0.0;                              // % of time since the last logged step waiting for batches
  double unix_time = 0.0;                                 // when the step ended
  std::optional<double> time_to_first_step_seconds = {};  // process start to the end of its first step; first row only
  std::optional<TimeSpent> time_spent = {};               // for the run so far; on ranks other than 0 this start only
};

struct ValidationMetrics {
  // Set by the caller of MetricsProcessor::log_validation(), except the perplexity.
  std::int64_t step = 0;
  double loss = 0.0;             // mean over the evaluated tokens
  double perplexity = 0.0;       // exp(loss); computed by MetricsProcessor
  std::int64_t tokens = 0;       // labels that counted, of all ranks
  std::int64_t rank_tokens = 0;  // tokens evaluated by this rank; not in validation.jsonl
  double seconds = 0.0;          // duration of the pass
  std::int64_t best_step = 0;    // the step with the lowest loss so far; 0 if no loss was a number yet
  double best_loss = 0.0;        // loss of best_step

  // Measured by MetricsProcessor.
  double tokens_per_second = 0.0;  // per rank
  MemoryUsage memory = {};
  double unix_time = 0.0;
};

struct EvaluationMetrics;  // evaluation_metrics.h

// Name and meaning of a metric.
struct Metric {
  std::string_view name;  // its key in metrics.jsonl or validation.jsonl, unique there
  // Name in TensorBoard: TorchTitan's, or one that begins with titan/ or evaluation/. Empty if it is not shown there.
  std::string_view tag = {};
  std::string_view unit = {};         // unit of the value; empty for counts and plain numbers
  double tag_scale = 1.0;             // factor from the value to the unit that the tag names
  bool is_null_when_unknown = false;  // if not known, the row has the key with null; otherwise no key
  std::string_view meaning = {};      // for docs/metrics.md: its meaning, and of which ranks
};

// Upper bound of a row with all metrics. Sinks reserve it once, so that a row does not allocate.
inline constexpr std::size_t kMaxRowBytes = 4096;

inline constexpr double kGiBPerByte = 1.0 / (1024.0 * 1024.0 * 1024.0);

// Calls use(const Metric&, value) for every metric, in the order of the keys in a row of metrics.jsonl; new ones go
// last. A value is an integer, a bool, a double, or a std::optional of these, which is empty if the value is not known.
template <typename Use>
void for_each_metric(const StepMetrics& m, Use&& use) {
  use(Metric{.name = "step", .meaning = "number of the step, from 1"}, m.step);
  use(Metric{.name = "loss",
             .tag = "loss_metrics/global_avg_loss",
             .meaning = "mean over all tokens of the step, of all ranks"},
      m.loss);
  use(Metric{.name = "max_loss",
             .tag = "loss_metrics/global_max_loss",
             .meaning = "the largest mean over the tokens of one rank, of all ranks"},
      m.max_loss);
  use(Metric{.name = "grad_norm", .tag = "grad_norm", .meaning = "norm of the whole gradient before clipping"},
      m.grad_norm);
  use(Metric{.name = "lr", .tag = "lr", .meaning = "learning rate of the step"}, m.lr);
  use(Metric{.name = "tokens_seen",
             .tag = "n_tokens_seen",
             .meaning =
                 "by all ranks since the first step of the training, restarts and changes of the number of ranks "
                 "included"},
      m.tokens_seen);
  use(Metric{.name = "tokens_per_second",
             .tag = "throughput(tps)",
             .unit = "tokens/s",
             .meaning = "of one rank, over all time since the last row; that of the first row includes the start"},
      m.tokens_per_second);
  use(Metric{.name = "tflops", .tag = "tflops", .unit = "TFLOP/s", .meaning = "tokens_per_second in model FLOP"},
      m.tflops);
  use(Metric{.name = "mfu",
             .tag = "mfu(%)",
             .unit = "%",
             .is_null_when_unknown = true,
             .meaning = "tflops of the peak of the device; on CPU of a measured product of matrices. null where the "
                        "peak is not known"},
      m.mfu);
  use(Metric{.name = "memory_peak_bytes",
             .tag = "memory/max_reserved(GiB)",
             .unit = "bytes",
             .tag_scale = kGiBPerByte,
             .meaning = "of one rank: the most that the caching allocator held since the last row; on CPU the largest "
                        "resident set of the process so far"},
      m.memory.peak_bytes);
  use(Metric{.name = "step_seconds",
             .tag = "time_metrics/end_to_end(s)",
             .unit = "s",
             .meaning = "of one rank: mean duration of the steps since the last row, without checkpoints, validation "
                        "and the log"},
      m.step_seconds);
  use(Metric{.name = "data_seconds",
             .tag = "time_metrics/data_loading(s)",
             .unit = "s",
             .meaning = "of one rank: the part of step_seconds spent waiting for batches"},
      m.data_seconds);
  use(Metric{.name = "unix_time", .unit = "s", .meaning = "when the row was made, since 1970"}, m.unix_time);
  use(Metric{.name = "grad_scale",
             .tag = "titan/grad_scale",
             .meaning = "what the loss was multiplied by for the gradients; with float16 only"},
      m.grad_scale);
  use(Metric{.name = "bad_records",
             .tag = "titan/bad_records",
             .meaning = "records that all ranks have skipped since this start; with training.on_bad_record = \"skip\" "
                        "only"},
      m.bad_records);
  use(Metric{.name = "time_to_first_step_seconds",
             .unit = "s",
             .meaning = "from the start of the process to the end of its first step; first row of a start only"},
      m.time_to_first_step_seconds);
  use(Metric{.name = "data_percent",
             .tag = "time_metrics/data_loading(%)",
             .unit = "%",
             .meaning = "of one rank: waiting for batches, of all time since the last row"},
      m.data_percent);
  use(Metric{.name = "memory_peak_percent",
             .tag = "memory/max_reserved(%)",
             .unit = "%",
             .meaning = "memory_peak_bytes of the memory of the device, on CPU of the machine"},
      m.memory.percent(m.memory.peak_bytes));
  use(Metric{.name = "memory_active_bytes",
             .tag = "memory/max_active(GiB)",
             .unit = "bytes",
             .tag_scale = kGiBPerByte,
             .meaning = "of one rank: the most that was in use at once since the last row, of what the caching "
                        "allocator held; on CPU the same as memory_peak_bytes"},
      m.memory.active_peak_bytes);
  use(Metric{.name = "memory_active_percent",
             .tag = "memory/max_active(%)",
             .unit = "%",
             .meaning = "memory_active_bytes of the memory of the device, on CPU of the machine"},
      m.memory.percent(m.memory.active_peak_bytes));
  use(Metric{.name = "num_alloc_retries",
             .tag = "memory/num_alloc_retries",
             .meaning = "of one rank: how often the caching allocator had to free what it held and ask again, since "
                        "this start; on CPU 0"},
      m.memory.num_alloc_retries);
  use(Metric{.name = "num_ooms",
             .tag = "memory/num_ooms",
             .meaning = "of one rank: failed allocations, since this start; on CPU 0"},
      m.memory.num_ooms);
  use(Metric{.name = "goodput_percent",
             .tag = "titan/goodput(%)",
             .unit = "%",
             .meaning = "productive_seconds of the sum of it and all lost_ ones"},
      m.time_spent ? std::optional(m.time_spent->goodput_percent()) : std::nullopt);
  for (const TimeUse& each : time_uses())
    use(Metric{.name = each.name, .unit = "s", .meaning = each.meaning},
        m.time_spent ? std::optional((*m.time_spent)[each.cause]) : std::nullopt);
  use(Metric{.name = "comm_seconds",
             .tag = "titan/communication(s)",
             .unit = "s",
             .meaning =
                 "of one rank: the part of step_seconds in collectives, waiting for other ranks included; on CPU "
                 "only, for a GPU's streams wait by themselves (a profile says how long)"},
      m.comm_seconds);
}

// Does the same for a row of validation.jsonl.
template <typename Use>
void for_each_metric(const ValidationMetrics& m, Use&& use) {
  use(Metric{.name = "step", .meaning = "the step after which the pass was made"}, m.step);
  use(Metric{.name = "loss",
             .tag = "validation_metrics/loss",
             .meaning = "mean over all tokens that were looked at, of all ranks"},
      m.loss);
  use(Metric{.name = "perplexity", .tag = "titan/validation_perplexity", .meaning = "e to the loss"}, m.perplexity);
  use(Metric{.name = "tokens", .meaning = "labels that counted, of all ranks"}, m.tokens);
  use(Metric{.name = "seconds", .unit = "s", .meaning = "duration of the pass"}, m.seconds);
  use(Metric{.name = "is_best", .meaning = "whether no pass had a lower loss so far"}, m.best_step == m.step);
  use(Metric{.name = "best_step", .meaning = "the step with the lowest loss so far; 0 where none was a number"},
      m.best_step);
  use(Metric{.name = "best_loss", .meaning = "its loss"}, m.best_loss);
  use(Metric{.name = "tokens_per_second",
             .tag = "validation_metrics/throughput(tps)",
             .unit = "tokens/s",
             .meaning = "of one rank, over the pass"},
      m.tokens_per_second);
  use(Metric{.name = "memory_peak_bytes",
             .tag = "validation_metrics/memory/max_reserved(GiB)",
             .unit = "bytes",
             .tag_scale = kGiBPerByte,
             .meaning = "as in metrics.jsonl"},
      m.memory.peak_bytes);
  use(Metric{.name = "unix_time", .unit = "s", .meaning = "when the pass ended, since 1970"}, m.unix_time);
  use(Metric{.name = "memory_peak_percent",
             .tag = "validation_metrics/memory/max_reserved(%)",
             .unit = "%",
             .meaning = "as in metrics.jsonl"},
      m.memory.percent(m.memory.peak_bytes));
  use(Metric{.name = "memory_active_bytes",
             .tag = "validation_metrics/memory/max_active(GiB)",
             .unit = "bytes",
             .tag_scale = kGiBPerByte,
             .meaning = "as in metrics.jsonl"},
      m.memory.active_peak_bytes);
  use(Metric{.name = "memory_active_percent",
             .tag = "validation_metrics/memory/max_active(%)",
             .unit = "%",
             .meaning = "as in metrics.jsonl"},
      m.memory.percent(m.memory.active_peak_bytes));
}

// Interface of the sinks that report metrics. Called from the training thread.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void log(const StepMetrics& metrics) = 0;
  virtual void log_validation(const ValidationMetrics&) {}
  virtual void log_evaluation(const EvaluationMetrics&) {}
  // Receives the norms of the gradients before clipping, one per layer, of a logged step.
  virtual void log_gradient_norms(std::int64_t /*step*/, std::span<const double> /*norms*/) {}
  // Called after every step, logged or not, before log().
  virtual void on_step(std::int64_t /*step*/) {}
  // Receives the progress of the first step of this process, `seconds` after it began. Called from another thread,
  // while the training thread is in that step and calls nothing here.
  virtual void on_progress(std::int64_t /*step*/, const StepProgress& /*progress*/, double /*seconds*/) {}
  // Called after a rollback: rows of steps after `finished_steps` do not count any more, and those steps run again.
  virtual void roll_back(std::int64_t /*finished_steps*/) {}
  // Called after the last row. Throws std::system_error naming the file if what was written is not there any more.
  virtual void check() {}
  // Returns why the record of the run, which a resumed run continues, cannot be written any more; "" while it can. The
  // run must end then.
  virtual const std::string& failure() const {
    static const std::string kNone;
    return kNone;
  }
};

}  // namespace titan::metrics
