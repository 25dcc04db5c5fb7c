// metrics.csv and validation.csv: the content of metrics.jsonl and validation.jsonl as tables. The columns are always
// the same; a value that a row does not have is an empty cell. Numbers read back exactly; those that are not finite are
// NaN, Infinity and -Infinity.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "metrics/history/history_sink.h"

namespace titan::metrics {

class CsvSink : public HistorySink {
 public:
  // Writes both files to `folder`, with a row whenever JsonlSink writes one. `finished_steps` as in StepHistory.
  CsvSink(const std::filesystem::path& folder, std::int64_t finished_steps);
  void log(const StepMetrics& metrics) override;
  void log_validation(const ValidationMetrics& metrics) override;
};

}  // namespace titan::metrics
