// Tests that docs/metrics.md has each metric once, as its header describes it.
#include <gmock/gmock.h>

#include <string>

#include "base/fs.h"
#include "metrics/rows/evaluation_metrics.h"
#include "metrics/rows/step_metrics.h"

namespace titan::metrics {
namespace {

template <typename Metrics>
std::string table(const Metrics& metrics = {}) {
  std::string text = "| name | in TensorBoard | unit | meaning |\n| --- | --- | --- | --- |\n";
  for_each_metric(metrics, [&](const Metric& metric, const auto&) {
    EXPECT_FALSE(metric.meaning.empty()) << metric.name;
    const std::string tag = metric.tag.empty() ? "" : "`" + std::string(metric.tag) + "`";
    text += "| `" + std::string(metric.name) + "` | " + tag + " | " + std::string(metric.unit) + " | " +
            std::string(metric.meaning) + " |\n";
  });
  return text;
}

TEST(MetricsPage, HasEveryMetricAsItIsDescribed) {
  const std::string page = read_file(TITAN_SOURCE_DIR "/docs/metrics.md");
  EvaluationMetrics evaluation;
  evaluation.tasks.emplace_back("TASK", 0);
  evaluation.tasks.back().scores.emplace_back("TASK", "SCORE", 0, 0);
  for (const std::string& wanted : {table<StepMetrics>(), table<ValidationMetrics>(), table(evaluation)})
    EXPECT_NE(page.find("\n" + wanted + "\n"), std::string::npos) << "docs/metrics.md must have this table:\n"
                                                                  << wanted;
}

}  // namespace
}  // namespace titan::metrics
