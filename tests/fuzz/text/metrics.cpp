#include <memory>

#include "base/fs.h"
#include "base/run_layout.h"
#include "lab/runs/events.h"
#include "lab/runs/metrics_file.h"
#include "metrics/history/csv_sink.h"
#include "metrics/history/json_lines.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

constexpr std::int64_t kFinished = 3;

// Reads the files as `report`, `plot` and sweeps do.
void read_runs(const std::filesystem::path& folder) {
  runs::RunMetrics metrics(folder);
  metrics.refresh();
  for (const std::string& field : metrics.fields()) {
    const runs::Curve curve = metrics.curve(field);
    require(curve.steps.size() == curve.values.size(), "a curve with other steps than values");
    for (std::size_t i = 1; i < curve.steps.size(); ++i)
      require(curve.steps[i - 1] < curve.steps[i], "steps out of order");
    require(runs::thinned(curve, 3).steps.size() <= 3, "a curve that was not thinned");
  }
  runs::read_events(folder);
}

// Continues the files as a resumed run does.
void continue_run(const std::filesystem::path& folder) {
  metrics::StepHistory history(folder / layout::kStepsFile, kFinished, metrics::json_lines());
  history.append(R"({"step": 4, "loss": 1.5})");
  metrics::CsvSink csv(folder, kFinished);
  csv.on_step(kFinished + 1);
  csv.log({});
  runs::MetricsFile steps(folder / layout::kStepsFile);
  steps.refresh();
  require(steps.last_step() == kFinished + 1, "rows that the resumed run has not reached");
}

}  // namespace

bool run_metrics(std::string_view input) {
  const MemoryFolder folder;
  for (const char* name : {layout::kStepsFile, layout::kValidationsFile, layout::kEventsFile, layout::kStepsTable})
    write_over(folder.path() / name, input);
  return accepts([&] {
    read_runs(folder.path());
    continue_run(folder.path());
  });
}

Seeds metrics_seeds() {
  return {{"rows", R"({"step": 1, "loss": 8.25, "grad_norm": NaN, "lr": 1e-3, "tokens_seen": 1024}
{"step": 2, "loss": 7.5, "grad_norm": Infinity, "nested": {"a": [1, null]}, "text": "x"}
{"step": 5, "loss": 7.25}
{"step": 6, "lo)"},
          {"events", R"({"step": 0, "unix_time": 1.7e9, "event": "start", "ranks": 2}
{"step": 2, "unix_time": 1.7e9, "event": "save", "seconds": 0.12, "details": {"a": [true]}}
{"step": 1, "unix_time": 1.7e9, "event": "resume"}
)"},
          {"table", "step,loss,grad_norm\n1,2.5,3\n2,NaN,-Infinity\n"}};
}

}  // namespace titan::fuzz
