#include "metrics/history/csv_sink.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <type_traits>

#include "base/run_layout.h"
#include "metrics/history/append.h"

namespace titan::metrics {
namespace {

// Appends the metrics of for_each_metric() as cells, separated by commas.
class CellWriter {
 public:
  explicit CellWriter(std::string& row) : row_(row) { row_.clear(); }

  template <typename Number>
  void operator()(const Metric&, const Number& value) {
    separate();
    write(value);
  }
  template <typename Number>
  void operator()(const Metric&, const std::optional<Number>& value) {
    separate();
    if (value) write(*value);
  }

 private:
  void separate() {
    if (!is_first_) row_.push_back(',');
    is_first_ = false;
  }
  template <typename Number>
  void write(Number value) {
    if constexpr (std::is_floating_point_v<Number>) {
      if (const auto name = name_of_not_finite(value); !name.empty()) {
        row_.append(name);
        return;
      }
    }
    append(row_, "{}", value);
  }

  std::string& row_;
  bool is_first_ = true;
};

template <typename Metrics>
StepHistory::Format csv_format() {
  std::string header;
  for_each_metric(Metrics{}, [&](const Metric& metric, const auto&) {
    if (!header.empty()) header.push_back(',');
    header.append(metric.name);
  });
  const auto num_commas = std::count(header.begin(), header.end(), ',');
  const auto step_of = [num_commas](std::string_view line) -> std::optional<std::int64_t> {
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
    if (error != std::errc() || end == line.data() + line.size() || *end != ',') return std::nullopt;
    if (std::count(line.begin(), line.end(), ',') != num_commas) return std::nullopt;  // it was cut short
    return step;
  };
  return {.step_of = step_of, .header = std::move(header), .needs_newline = true};
}

}  // namespace

CsvSink::CsvSink(const std::filesystem::path& folder, std::int64_t finished_steps)
    : HistorySink(folder / layout::kStepsTable, csv_format<StepMetrics>(), folder / layout::kValidationsTable,
                  csv_format<ValidationMetrics>(), finished_steps) {}

void CsvSink::log(const StepMetrics& metrics) {
  for_each_metric(metrics, CellWriter(row_));
  steps_.append(row_);
}

void CsvSink::log_validation(const ValidationMetrics& metrics) {
  for_each_metric(metrics, CellWriter(row_));
  validations_.append(row_);
}

}  // namespace titan::metrics
