#include "metrics/progress_bar.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "metrics/history/append.h"

namespace titan::metrics {
namespace {

constexpr const char* kWipe = "\r\033[K";
constexpr std::size_t kBarCells = 20;
constexpr std::chrono::milliseconds kRedrawEvery{100};
constexpr std::size_t kSparklineCells = 24;
constexpr const char* kHeights[] = {"\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"};

// Checks the variables in the order of setlocale(3).
bool terminal_has_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view text = value;
    return text.find("UTF-8") != text.npos || text.find("utf8") != text.npos;
  }
  return false;
}

std::size_t width_of(std::string_view utf8) {
  return static_cast<std::size_t>(std::ranges::count_if(utf8, [](char c) { return (c & 0xC0) != 0x80; }));
}

int columns_of(std::FILE* terminal) {
  winsize size{};
  return ::ioctl(fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

namespace detail {

// Replaces the logger's sinks; its mutex keeps lines and bar apart.
class BarLogSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  BarLogSink(std::FILE* terminal, std::vector<spdlog::sink_ptr> inner)
      : terminal_(terminal), inner_(std::move(inner)) {}

  void show(std::string_view bar) {
    const std::lock_guard lock(mutex_);
    bar_ = bar;
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

void format_progress(std::int64_t step, std::int64_t total_steps, const StepMetrics* last, double seconds_left,
                     int columns, std::string_view sparkline, std::string& text) {
  const double done =
      total_steps > 0 ? std::clamp(static_cast<double>(step) / static_cast<double>(total_steps), 0.0, 1.0) : 1.0;
  const auto cells = static_cast<std::size_t>(done * kBarCells);
  text.clear();
  append(text, "{:3d}% |", static_cast<int>(done * 100));
  text.append(cells, '#').append(kBarCells - cells, ' ');
  append(text, "| {}/{}", step, total_steps);
  if (last) {
    append(text, "  loss {:.4f}  tps ", last->loss);
    text.append(with_thousands(static_cast<std::int64_t>(last->tokens_per_second)));
  }
  if (seconds_left >= 0) text.append("  ").append(format_duration(seconds_left)).append(" left");
  // The last column stays free: a full line wraps on some terminals, and then cannot be wiped.
  const auto room = static_cast<std::size_t>(std::max(0, columns - 1));
  if (text.size() >= room) return text.resize(room);
  if (last && last->memory.peak_bytes > 0) {
    const std::size_t before = text.size();
    append(text, "  {:.2f}GiB", static_cast<double>(last->memory.peak_bytes) * kGiBPerByte);
    if (text.size() > room) text.resize(before);
  }
  if (!sparkline.empty() && text.size() + 2 + width_of(sparkline) <= room) text.append("  ").append(sparkline);
}

void format_sparkline(std::span<const double> values, std::string& text) {
  text.clear();
  if (values.size() < 2) return;
  double least = std::numeric_limits<double>::infinity(), largest = -least;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    largest = std::max(largest, value);
  }
  constexpr int kTop = static_cast<int>(std::size(kHeights)) - 1;
  for (const double value : values) {
    const double share = largest > least ? (value - least) / (largest - least) : 0.0;
    text += std::isfinite(value) ? kHeights[static_cast<int>(std::lround(share * kTop))] : " ";
  }
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
  if (losses_.size() == kSparklineCells) losses_.erase(losses_.begin());
  losses_.push_back(metrics.loss);
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

void ProgressBar::on_progress(std::int64_t step, const StepProgress& progress, double seconds) {
  const int columns = columns_of(terminal_);
  format_progress(step - 1, total_steps_, nullptr, /*seconds_left=*/-1, columns, "", text_);
  append(text_, "  step {}: {}% after ", step, static_cast<int>(progress.share() * 100));
  text_.append(format_duration(seconds));
  text_.resize(std::min(text_.size(), static_cast<std::size_t>(std::max(0, columns - 1))));
  log_sink_->show(text_);
}

void ProgressBar::draw() {
  last_draw_ = std::chrono::steady_clock::now();
  double seconds_left = -1.0;  // the first step of a run says little about the rest
  if (step_ > first_step_) {
    const double elapsed = std::chrono::duration<double>(last_draw_ - first_step_end_).count();
    seconds_left = elapsed / static_cast<double>(step_ - first_step_) * static_cast<double>(total_steps_ - step_);
  }
  if (terminal_has_utf8()) format_sparkline(losses_, sparkline_);
  format_progress(step_, total_steps_, has_last_ ? &last_ : nullptr, seconds_left, columns_of(terminal_), sparkline_,
                  text_);
  log_sink_->show(text_);
}

std::unique_ptr<MetricsSink> make_progress_bar(std::int64_t total_steps) {
  if (!stdout_is_terminal()) return nullptr;
  return std::make_unique<ProgressBar>(stdout, total_steps);
}

}  // namespace titan::metrics
