#include "metrics/make_sinks.h"

#include <utility>

#include "metrics/console_sink.h"
#include "metrics/grad_scale_watch.h"
#include "metrics/jsonl_sink.h"
#include "metrics/progress_bar.h"

namespace titan::metrics {

std::vector<std::unique_ptr<MetricsSink>> make_sinks(const config::JobConfig& config, std::int64_t finished_steps) {
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  sinks.push_back(std::make_unique<JsonlSink>(config.job.dump_folder, finished_steps));
  sinks.push_back(std::make_unique<ConsoleSink>(!config.metrics.disable_color_printing));
  if (auto bar = make_progress_bar(config.training.steps)) sinks.push_back(std::move(bar));
  sinks.push_back(std::make_unique<GradScaleWatch>());
  return sinks;
}

}  // namespace titan::metrics
