#include "metrics/grad_scale_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace titan::metrics {
namespace {

// Returns the warnings of a run with these gradient scales in its rows.
std::string warnings(const std::vector<std::optional<double>>& scales) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_st>(log)));
  spdlog::default_logger()->set_pattern("%v");
  GradScaleWatch watch;
  for (const auto& scale : scales) watch.log({.step = 1, .grad_scale = scale});
  spdlog::set_default_logger(before);
  return log.str();
}

TEST(GradScaleWatch, WarnsOnceInARowOfSmallScales) {
  EXPECT_EQ(warnings({65536, 0.5, 0.5, 1, 0.5, 0.5}), "");
  const std::string found = warnings({0.5, 0.25, 0.125, 0.0625, 0.0625});
  EXPECT_THAT(found, ::testing::StartsWith("the gradient scale of float16 fell to 0.125 and was below 1 in 3 logged"));
  EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 1);
}

TEST(GradScaleWatch, IsSilentWithoutFloat16) { EXPECT_EQ(warnings({std::nullopt, std::nullopt, std::nullopt}), ""); }

}  // namespace
}  // namespace titan::metrics
