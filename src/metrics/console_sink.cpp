#include "metrics/console_sink.h"

#include <spdlog/spdlog.h>

#include <cmath>
#include <cstdlib>

#include "base/log.h"
#include "base/text.h"

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

std::string rounded_with_thousands(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", unsigned_nan(value));
  return with_thousands(static_cast<std::int64_t>(std::nearbyint(value)));
}

// 1234.5 -> "1,234.50"
std::string two_decimals_with_thousands(double value) {
  std::string digits = fmt::format("{:.2f}", unsigned_nan(value));
  if (!std::isfinite(value)) return digits;
  const auto point = digits.find('.');
  return with_thousands(std::stoll(digits.substr(0, point))) + digits.substr(point);
}

template <typename Metrics>
std::string memory_text(const Metrics& metrics) {
  const MemoryUsage& memory = metrics.memory;
  return fmt::format("memory: {:5.2f}GiB({:.2f}%)", static_cast<double>(memory.peak_bytes) * kGiBPerByte,
                     memory.percent(memory.peak_bytes));
}

}  // namespace

std::string format_console_line(const StepMetrics& m, bool colors) {
  const Palette& c = colors ? kColored : kPlain;
  return fmt::format(
      "{}step: {:2}  {}loss: {:>8.5f}  {}grad_norm: {:>7.4f}  {}{}  {}tps: {}  {}tflops: {}  {}mfu: {}{}", c.red,
      m.step, c.green, unsigned_nan(m.loss), c.orange, unsigned_nan(m.grad_norm), c.turquoise, memory_text(m), c.blue,
      rounded_with_thousands(m.tokens_per_second), c.cyan, two_decimals_with_thousands(m.tflops), c.magenta,
      m.mfu ? fmt::format("{:.2f}%", *m.mfu) : "N/A", c.reset);
}

std::string format_console_line(const ValidationMetrics& m, bool colors) {
  const Palette& c = colors ? kColored : kPlain;
  const std::string best =
      m.best_step > 0 ? fmt::format("  best: {:.4f} at step {}", m.best_loss, m.best_step) : std::string();
  return fmt::format("{}validate step: {:2}  {}loss: {:>7.4f}  {}{}  {}tps: {}  {}perplexity: {:.4f}{}{}", c.yellow,
                     m.step, c.green, unsigned_nan(m.loss), c.turquoise, memory_text(m), c.blue,
                     rounded_with_thousands(m.tokens_per_second), c.magenta, unsigned_nan(m.perplexity), best, c.reset);
}

ConsoleSink::ConsoleSink(bool colors) : colors_(colors && stdout_is_terminal() && std::getenv("NO_COLOR") == nullptr) {}

void ConsoleSink::log(const StepMetrics& metrics) { spdlog::info("{}", format_console_line(metrics, colors_)); }

void ConsoleSink::log_validation(const ValidationMetrics& metrics) {
  spdlog::info("{}", format_console_line(metrics, colors_));
}

}  // namespace titan::metrics
