#include "metrics/rows/step_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <type_traits>
#include <vector>

namespace titan::metrics {
namespace {

template <typename Metrics>
void expect_unique_names() {
  std::set<std::string_view> names, tags;
  for_each_metric(Metrics{}, [&](const Metric& metric, const auto&) {
    EXPECT_TRUE(names.insert(metric.name).second) << metric.name;
    if (!metric.tag.empty()) {
      EXPECT_TRUE(tags.insert(metric.tag).second) << metric.tag;
    }
  });
}

TEST(StepMetrics, NamesAndTagsAreUnique) {
  expect_unique_names<StepMetrics>();
  expect_unique_names<ValidationMetrics>();
}

// TorchTitan counts memory in GiB.
TEST(StepMetrics, ATagNamesTheUnitOfItsValue) {
  StepMetrics metrics;
  metrics.memory.peak_bytes = std::uint64_t{3} << 30;
  for_each_metric(metrics, [](const Metric& metric, const auto& value) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
      if (metric.tag == "memory/max_reserved(GiB)") {
        EXPECT_EQ(static_cast<double>(value) * metric.tag_scale, 3.0);
      }
    }
    EXPECT_EQ(metric.tag.ends_with("(GiB)"), metric.unit == "bytes") << metric.name;
    EXPECT_TRUE(!metric.tag.ends_with("(s)") || metric.unit == "s") << metric.name;
  });
}

}  // namespace
}  // namespace titan::metrics
