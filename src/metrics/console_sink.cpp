#include "metrics/console_sink.h"

#include <spdlog/spdlog.h>

#include <cmath>
#include <cstdlib>

#include "base/log.h"
#include "base/text.h"
#include "metrics/history/append.h"

namespace titan::metrics {
namespace {

struct Palette {
  const char* red = "";
  const char* green = "";
  const char* orange = "";
  const char* turquoise = "";
  const char* blue = "";
  const char* cyan = "";
  const char* magenta = "";
  const char* yellow = "";
  const char* reset = "";
};

constexpr Palette kPlain;
constexpr Palette kColored = {.red = "\033[31m",
                              .green = "\033[32m",
                              .orange = "\033[38;2;180;60;0m",
                              .turquoise = "\033[38;2;54;234;195m",
                              .blue = "\033[34m",
                              .cyan = "\033[36m",
                              .magenta = "\033[35m",
                              .yellow = "\033[33m",
                              .reset = "\033[39m"};

// fmt prints the sign of a NaN (and left-aligns it unless told); TorchTitan's Python does not.
double unsigned_nan(double value) { return std::isnan(value) ? std::fabs(value) : value; }

// Appends 1234.5 with two decimals as "1,234.50"; halves round to even, as in Python.
void add_with_thousands(std::string& line, double value, int decimals) {
  const std::size_t begin = line.size();
  append(line, "{:.{}f}", unsigned_nan(value), decimals);
  if (!std::isfinite(value)) return;
  group_thousands(line, begin + (line[begin] == '-' ? 1 : 0));
}

template <typename Metrics>
void add_memory(std::string& line, const Metrics& metrics) {
  const MemoryUsage& memory = metrics.memory;
  append(line, "memory: {:5.2f}GiB({:.2f}%)", static_cast<double>(memory.peak_bytes) * kGiBPerByte,
         memory.percent(memory.peak_bytes));
}

}  // namespace

void format_console_line(const StepMetrics& m, bool colors, std::string& line) {
  const Palette& c = colors ? kColored : kPlain;
  line.clear();
  append(line, "{}step: {:2}  {}loss: {:>8.5f}  {}grad_norm: {:>7.4f}  {}", c.red, m.step, c.green,
         unsigned_nan(m.loss), c.orange, unsigned_nan(m.grad_norm), c.turquoise);
  add_memory(line, m);
  append(line, "  {}tps: ", c.blue);
  add_with_thousands(line, m.tokens_per_second, 0);
  append(line, "  {}tflops: ", c.cyan);
  add_with_thousands(line, m.tflops, 2);
  append(line, "  {}mfu: ", c.magenta);
  if (m.mfu) {
    append(line, "{:.2f}%", *m.mfu);
  } else {
    line.append("N/A");
  }
  line.append(c.reset);
}

void format_console_line(const ValidationMetrics& m, bool colors, std::string& line) {
  const Palette& c = colors ? kColored : kPlain;
  line.clear();
  append(line, "{}validate step: {:2}  {}loss: {:>7.4f}  {}", c.yellow, m.step, c.green, unsigned_nan(m.loss),
         c.turquoise);
  add_memory(line, m);
  append(line, "  {}tps: ", c.blue);
  add_with_thousands(line, m.tokens_per_second, 0);
  append(line, "  {}perplexity: {:.4f}", c.magenta, unsigned_nan(m.perplexity));
  if (m.best_step > 0) append(line, "  best: {:.4f} at step {}", m.best_loss, m.best_step);
  line.append(c.reset);
}

void format_console_line(std::int64_t step, const TaskScores& task, bool colors, std::string& line) {
  const Palette& c = colors ? kColored : kPlain;
  line.clear();
  append(line, "{}evaluate step: {:2}  {}{}:{}", c.yellow, step, c.green, task.task, c.magenta);
  for (std::size_t i = 0; i < task.scores.size(); ++i) {
    const TaskScore& score = task.scores[i];
    append(line, "{} {} {:.4f}", i == 0 ? "" : ",", score.score, unsigned_nan(score.value));
    if (score.error) append(line, " +- {:.4f}", *score.error);
  }
  append(line, "{} (", c.reset);
  add_with_thousands(line, static_cast<double>(task.num_items), 0);
  append(line, " {})", task.num_items == 1 ? "item" : "items");
}

ConsoleSink::ConsoleSink(bool colors) : colors_(colors && stdout_is_terminal() && std::getenv("NO_COLOR") == nullptr) {
  line_.reserve(kMaxRowBytes);
}

void ConsoleSink::log(const StepMetrics& metrics) {
  format_console_line(metrics, colors_, line_);
  spdlog::info(line_);
}

void ConsoleSink::log_validation(const ValidationMetrics& metrics) {
  format_console_line(metrics, colors_, line_);
  spdlog::info(line_);
}

void ConsoleSink::log_evaluation(const EvaluationMetrics& metrics) {
  for (const TaskScores& task : metrics.tasks) {
    format_console_line(metrics.step, task, colors_, line_);
    spdlog::info(line_);
  }
}

}  // namespace titan::metrics
