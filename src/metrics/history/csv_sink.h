// metrics.csv and validation.csv: what is in metrics.jsonl and validation.jsonl, as tables. The columns are always the
// same; a number that a row does not have is an empty cell. Numbers read back exactly; those that are not finite are
// NaN, Infinity and -Infinity.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "metrics/history/history_sink.h"

namespace titan::metrics {

class CsvSink : public HistorySink {
 public:
  // Writes both into `folder`, with a row wherever JsonlSink writes one. `finished_steps` as StepHistory's.
  CsvSink(const std::filesystem::path& folder, std::int64_t finished_steps);
  void log(const StepMetrics& metrics) override;
  void log_validation(const ValidationMetrics& metrics) override;
};

}  // namespace titan::metrics
