// Tests the log line of a report.
#include <gtest/gtest.h>

#include "train/guests/numerics/nan_locator.h"

namespace titan::train {
namespace {

TEST(NanReport, NamesModuleWeightAndGradients) {
  const NanReport report{
      .output = NanReport::Output{.module = "layers.3.w2", .rank = 1, .microbatch = 2, .count = {.nan = 64, .inf = 1}},
      .bad_loss_ranks = {1},
      .weights = {{"layers.3.w2.weight", {.nan = 3}}},
      .gradients = {{"tok.weight", {.nan = 7}}, {"layers.3.w2.weight", {.inf = 2}}},
      .has_gradients = true,
      .num_parameters = 9};
  EXPECT_EQ(
      describe(report),
      "first not finite: the output of layers.3.w2 on rank 1, microbatch 2 (64 NaN and 1 infinity, its inputs are "
      "finite, its weight holds 3 NaN); the loss is not finite on rank 1; weights: layers.3.w2.weight (3 NaN); "
      "gradients: those of 2 of 9 parameters are not finite, first layers.3.w2.weight as backward goes");
}

TEST(NanReport, SaysWhatWasFinite) {
  NanReport report;
  report.has_gradients = true;
  EXPECT_EQ(describe(report),
            "every output is finite when the forward is run again: it began in backward, or does not happen each time; "
            "weights: all finite; gradients: each is finite");
}

TEST(NanReport, CountsWhatItDoesNotName) {
  NanReport report;
  for (const char* name : {"a", "b", "c", "d", "e"}) report.weights.push_back({name, {.inf = 2}});
  report.bad_loss_ranks = {0, 2};
  EXPECT_NE(
      describe(report).find("the loss is not finite on ranks 0, 2; weights: a (2 infinities), b (2 infinities), c "
                            "(2 infinities) and 2 more"),
      std::string::npos)
      << describe(report);
}

}  // namespace
}  // namespace titan::train
