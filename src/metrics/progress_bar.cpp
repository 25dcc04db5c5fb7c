#include "metrics/progress_bar.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"

namespace titan::metrics {
namespace {

constexpr const char* kWipe = "\r\033[K";
constexpr int kBarCells = 20;
constexpr std::chrono::milliseconds kRedrawEvery{100};

int columns_of(std::FILE* terminal) {
  winsize size{};
  return ::ioctl(fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

namespace detail {

// Takes the place of the logger's sinks; its mutex keeps lines and bar apart.
class BarLogSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  BarLogSink(std::FILE* terminal, std::vector<spdlog::sink_ptr> inner)
      : terminal_(terminal), inner_(std::move(inner)) {}

  void show(std::string bar) {
    const std::lock_guard lock(mutex_);
    bar_ = std::move(bar);
    std::fputs(kWipe, terminal_);
    draw();
  }

  const std::vector<spdlog::sink_ptr>& inner() const { return inner_; }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::fputs(kWipe, terminal_);
    std::fflush(terminal_);
    for (const auto& target : inner_) {
      if (target->should_log(message.level)) target->log(message);
      target->flush();
    }
    draw();
  }
  void flush_() override {
    for (const auto& target : inner_) target->flush();
  }
  void set_formatter_(std::unique_ptr<spdlog::formatter> formatter) override {
    for (const auto& target : inner_) target->set_formatter(formatter->clone());
  }

 private:
  void draw() {
    std::fputs(bar_.c_str(), terminal_);
    std::fflush(terminal_);
  }

  std::FILE* terminal_;
  std::vector<spdlog::sink_ptr> inner_;
  std::string bar_;
};

}  // namespace detail

std::string format_progress(std::int64_t step, std::int64_t total_steps, const StepMetrics* last, double seconds_left,
                            int columns) {
  const double done =
      total_steps > 0 ? std::clamp(static_cast<double>(step) / static_cast<double>(total_steps), 0.0, 1.0) : 1.0;
  const int cells = static_cast<int>(done * kBarCells);
  std::string text = fmt::format("{:3d}% |{}{}| {}/{}", static_cast<int>(done * 100), std::string(cells, '#'),
                                 std::string(kBarCells - cells, ' '), step, total_steps);
  if (last) {
    text += fmt::format("  loss {:.4f}  tps {}", last->loss,
                        with_thousands(static_cast<std::int64_t>(last->tokens_per_second)));
  }
  if (seconds_left >= 0) text += "  " + format_duration(seconds_left) + " left";
  // The last column stays free: a full line wraps on some terminals, and then cannot be wiped.
  return text.substr(0, static_cast<std::size_t>(std::max(0, columns - 1)));
}

ProgressBar::ProgressBar(std::FILE* terminal, std::int64_t total_steps)
    : terminal_(terminal), total_steps_(total_steps) {
  auto& sinks = spdlog::default_logger()->sinks();
  log_sink_ = std::make_shared<detail::BarLogSink>(terminal, sinks);
  sinks = {log_sink_};
}

ProgressBar::~ProgressBar() {
  log_sink_->show("");
  auto& sinks = spdlog::default_logger()->sinks();
  if (sinks.size() == 1 && sinks.front() == log_sink_) sinks = log_sink_->inner();
}

void ProgressBar::log(const StepMetrics& metrics) {
  last_ = metrics;
  has_last_ = true;
  draw();
}

void ProgressBar::on_step(std::int64_t step) {
  const auto now = std::chrono::steady_clock::now();
  if (first_step_ == 0) {
    first_step_ = step;
    first_step_end_ = now;
  }
  step_ = step;
  if (now - last_draw_ >= kRedrawEvery || step == total_steps_) draw();
}

void ProgressBar::draw() {
  last_draw_ = std::chrono::steady_clock::now();
  double seconds_left = -1.0;  // the first step of a run says little about the rest
  if (step_ > first_step_) {
    const double elapsed = std::chrono::duration<double>(last_draw_ - first_step_end_).count();
    seconds_left = elapsed / static_cast<double>(step_ - first_step_) * static_cast<double>(total_steps_ - step_);
  }
  log_sink_->show(
      format_progress(step_, total_steps_, has_last_ ? &last_ : nullptr, seconds_left, columns_of(terminal_)));
}

std::unique_ptr<MetricsSink> make_progress_bar(std::int64_t total_steps) {
  if (!stdout_is_terminal()) return nullptr;
  return std::make_unique<ProgressBar>(stdout, total_steps);
}

}  // namespace titan::metrics
