#include "lab/runs/plot/plot.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "lab/runs/plot/canvas.h"

namespace titan::runs {
namespace {

constexpr int kLabelColumns = 10;  // fits "  1.234e-05" and the axis
constexpr int kRowsOfAxis = 2;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
  double place(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

// Returns the position of a value on the axis; nullopt if it cannot be shown.
std::optional<double> on_axis(double value, bool log) {
  if (!std::isfinite(value) || (log && value <= 0)) return std::nullopt;
  return log ? std::log10(value) : value;
}

// Shortens text to at most `size` characters: names may be longer than a line.
std::string cut(const std::string& text, std::size_t size) {
  return text.size() <= size ? text : "..." + text.substr(text.size() - size + 3);
}

// Returns the heading and the legend of the runs, over as many lines as needed.
std::vector<std::string> head(const std::string& metric, const std::vector<Series>& series, const PlotOptions& options,
                              bool letters) {
  const auto room = static_cast<std::size_t>(options.columns);
  std::vector<std::string> lines = {cut(metric, room)};
  std::size_t used = lines.front().size();
  if (series.size() == 1) {
    const std::string name = cut(series.front().name, room - std::min(room - 4, used + 2));
    if (used + 2 + name.size() <= room) lines.front() += "  " + name;
    return lines;
  }
  for (std::size_t i = 0; i < series.size(); ++i) {
    const std::string name = cut(series[i].name, room - 6);
    const std::string mark = letters ? std::string(1, static_cast<char>('a' + i % 26)) + ":" : "●";
    const std::size_t size = name.size() + 5;  // two blanks, the mark of one or two characters and one more
    if (used + size > room) {
      lines.emplace_back();
      used = 0;
    }
    const int number = static_cast<int>(i);
    lines.back() += "  " + (options.colors ? color_of_series(number) + mark + kNoColor : mark) + " " + name;
    used += size;
  }
  return lines;
}

void draw(Canvas& canvas, const Curve& curve, int series, const Range& x, const Range& y, bool log) {
  const int right = canvas.width() - 1, bottom = canvas.height() - 1;
  std::optional<std::pair<int, int>> last;
  for (std::size_t i = 0; i < curve.steps.size(); ++i) {
    const auto value = on_axis(curve.values[i], log);
    if (!value) {
      last.reset();
      continue;
    }
    const std::pair<int, int> now = {
        static_cast<int>(std::lround(x.place(static_cast<double>(curve.steps[i])) * right)),
        bottom - static_cast<int>(std::lround(y.place(*value) * bottom))};
    if (!last) last = now;
    canvas.line(last->first, last->second, now.first, now.second, series);
    last = now;
  }
}

std::string label(double at, bool log) { return fmt::format("{:.4g}", log ? std::pow(10.0, at) : at); }

// Returns the labels under the chart: the first and the last step, and the middle one if it differs from both.
std::string step_labels(const Range& x, int columns) {
  const auto text = [](double step) { return std::to_string(std::llround(step)); };
  std::string line(static_cast<std::size_t>(columns), ' ');
  const auto put = [&](std::size_t at, const std::string& word) { line.replace(at, word.size(), word); };
  const std::string last = text(x.high), middle = text((x.low + x.high) / 2);
  put(0, text(x.low));
  if (x.high == x.low) return line;
  put(line.size() - last.size(), last);
  if (x.high - x.low >= 2) put((line.size() - middle.size()) / 2, middle);
  return line;
}

}  // namespace

Curve smoothed(const Curve& curve, double weight) {
  Curve out = curve;
  double sum = 0, share = 0;
  for (double& value : out.values) {
    if (!std::isfinite(value)) continue;
    sum = sum * weight + value * (1 - weight);
    share = share * weight + 1 - weight;
    value = sum / share;
  }
  return out;
}

std::string plot(const std::string& metric, const std::vector<Series>& series, const PlotOptions& options) {
  std::vector<Curve> curves;
  Range x, y;
  for (const auto& one : series) {
    const Curve& curve = curves.emplace_back(smoothed(one.curve, options.smooth));
    for (std::size_t i = 0; i < curve.steps.size(); ++i) {
      const auto value = on_axis(curve.values[i], options.log);
      if (!value) continue;
      x.take(static_cast<double>(curve.steps[i]));
      y.take(*value);
    }
  }
  if (y.is_empty()) return metric + ": no run has a number of it" + (options.log ? " above 0" : "") + " yet\n";

  const bool letters = series.size() > 1 && !options.colors;
  const auto heading = head(metric, series, options, letters);
  const int rows = std::max(options.rows - static_cast<int>(heading.size()) - kRowsOfAxis, 3);
  const int columns = options.columns - kLabelColumns - 2;
  Canvas canvas(columns, rows);
  for (std::size_t i = 0; i < curves.size(); ++i) draw(canvas, curves[i], static_cast<int>(i), x, y, options.log);

  std::string out;
  for (const auto& line : heading) out += line + "\n";
  for (int row = 0; row < rows; ++row) {
    // Labels the top, the bottom and every fourth row between.
    const bool is_labelled = row == rows - 1 || (row % 4 == 0 && row < rows - 2);
    const double at = rows == 1 ? y.low : y.high - (y.high - y.low) * row / (rows - 1);
    out += fmt::format("{:>{}} {}", is_labelled ? label(at, options.log) : "", kLabelColumns, is_labelled ? "┤" : "│");
    out += canvas.row(row, options.colors, letters) + "\n";
  }
  std::string axis;
  for (int i = 0; i < columns; ++i) axis += "─";
  out += std::string(kLabelColumns + 1, ' ') + "└" + axis + "\n";
  return out + std::string(kLabelColumns + 2, ' ') + step_labels(x, columns) + "\n";
}

}  // namespace titan::runs
