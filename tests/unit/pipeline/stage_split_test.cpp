#include "pipeline/stage_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "pipeline/nearest_numbers.h"
#include "tests/support/message_of.h"

namespace titan::pipeline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string split_text(const StageRequest& request) {
  std::vector<std::string> parts;
  for (const StageModules& stage : split_into_stages(request, num_stages(request))) parts.push_back(join(stage, " "));
  return join(parts, " | ");
}

std::string split_refusal(const StageRequest& request) {
  return titan::test::message_of<ConfigError>([&] { split_text(request); });
}

// The first two are TorchTitan's of its debugmodel.
TEST(StageSplit, DealsLayersAsTorchTitan) {
  StageRequest request{.num_layers = 6, .num_ranks = 2, .layers_per_stage = {}};
  EXPECT_EQ(split_text(request), "tok_embeddings layers.0 layers.1 layers.2 | layers.3 layers.4 layers.5 norm output");
  request.is_single_stage = false;
  EXPECT_EQ(split_text(request),
            "tok_embeddings layers.0 | layers.1 layers.2 | layers.3 layers.4 | layers.5 norm output");
  request = {.num_layers = 3, .num_ranks = 2, .layers_per_stage = {}};  // 5 over 2: the first has one more
  EXPECT_EQ(split_text(request), "tok_embeddings layers.0 layers.1 | layers.2 norm output");
  request = {.num_layers = 5,
             .num_ranks = 3,
             .layers_per_stage = {},
             .first_stage_less_layers = 2,
             .last_stage_less_layers = 0};
  EXPECT_EQ(split_text(request), "tok_embeddings layers.0 | layers.1 layers.2 | layers.3 layers.4 norm output");
  request = {.num_layers = 2, .num_ranks = 1, .layers_per_stage = {}};
  EXPECT_EQ(split_text(request), "tok_embeddings layers.0 layers.1 norm output");
}

TEST(StageSplit, CountsStages) {
  StageRequest request{.num_layers = 14, .num_ranks = 2, .is_single_stage = false, .layers_per_stage = 4};
  EXPECT_EQ(num_stages(request), 4);
  request.layers_per_stage = 2;
  EXPECT_EQ(num_stages(request), 8);
  request.is_single_stage = true;
  request.layers_per_stage = 8;
  EXPECT_EQ(num_stages(request), 2);
}

TEST(StageSplit, RefusesWhatTheScheduleCannotHave) {
  StageRequest request{.num_layers = 14, .num_ranks = 2, .is_single_stage = false, .layers_per_stage = 6};
  EXPECT_THAT(split_refusal(request),
              AllOf(HasSubstr("makes 3 stages, which must be a multiple of parallelism.pipeline_parallel_degree (2)"),
                    HasSubstr("set it to 4 for 4 stages")));
  request.layers_per_stage = 8;
  EXPECT_THAT(split_refusal(request),
              AllOf(HasSubstr("makes 1 stage per rank"), HasSubstr("needs at least 2"), HasSubstr("or take 1F1B")));
  request.is_single_stage = true;
  request.layers_per_stage = 4;
  EXPECT_THAT(split_refusal(request), AllOf(HasSubstr("makes 2 stages per rank"), HasSubstr("needs exactly 1"),
                                            HasSubstr("set it to 8 for 2 stages")));
  request = {.num_layers = 1, .num_ranks = 4, .layers_per_stage = {}};
  EXPECT_THAT(split_refusal(request), HasSubstr("are fewer than the 4 stages; set "
                                                "parallelism.pipeline_parallel_degree to at most 3"));
  EXPECT_NO_THROW(split_into_stages({.num_layers = 1, .num_ranks = 3, .layers_per_stage = {}}, 3));
  request = {.num_layers = 6, .num_ranks = 4, .layers_per_stage = {}, .first_stage_less_layers = 3};
  EXPECT_THAT(
      split_refusal(request),
      AllOf(
          HasSubstr("parallelism.pipeline_parallel_first_stage_less_layers (3) is more than the layers of a stage, 2"),
          HasSubstr("set it to at most 2")));
  request.first_stage_less_layers = 2;
  EXPECT_NO_THROW(split_into_stages(request, 4));
  request = {.num_layers = 6, .num_ranks = 4, .layers_per_stage = {}, .last_stage_less_layers = 3};
  EXPECT_THAT(split_refusal(request), HasSubstr("parallelism.pipeline_parallel_last_stage_less_layers (3)"));
}

TEST(NearestNumbers, AreMultiplesAndDivisors) {
  EXPECT_EQ(nearest_multiples(8, 3), "6 or 9");
  EXPECT_EQ(nearest_multiples(2, 3), "3");
  EXPECT_EQ(nearest_divisors(12, 5), "4 or 6");
  EXPECT_EQ(nearest_divisors(16, 7), "4 or 8");
  EXPECT_EQ(nearest_divisors(9, 2), "1 or 3");
  EXPECT_EQ(nearest_divisors(6, 8), "6 at most");
}

std::string list_refusal(const std::vector<StageModules>& stages, bool is_single_stage = true) {
  const StageRequest request{
      .num_layers = 3, .num_ranks = 2, .is_single_stage = is_single_stage, .layers_per_stage = {}};
  return titan::test::message_of<ConfigError>([&] { check_stages(stages, request); });
}

TEST(StageSplit, ListsHaveEveryModuleOnceInOrder) {
  const StageRequest request{.num_layers = 3, .num_ranks = 2, .layers_per_stage = {}};
  EXPECT_NO_THROW(check_stages({{"layers.0", "tok_embeddings"}, {"layers.1", "layers.2", "output", "norm"}}, request));
  EXPECT_THAT(list_refusal({{"tok_embeddings", "layers.0"}, {"layers.2", "norm", "output"}}),
              HasSubstr("module_fqns_per_model_part: layers.1 is in no stage"));
  EXPECT_THAT(list_refusal({{"tok_embeddings", "layers.0", "layers.1"}, {"layers.1", "layers.2", "norm", "output"}}),
              HasSubstr("stage 1: layers.1 is in a stage already"));
  EXPECT_THAT(list_refusal({{"tok_embeddings", "layers.1"}, {"layers.0", "layers.2", "norm", "output"}}),
              HasSubstr("stage 1: layers.0 comes before layers.1 in the model"));
  EXPECT_THAT(list_refusal({{"tok_embedding", "layers.0"}, {"layers.1", "layers.2", "norm", "output"}}),
              HasSubstr("has no module \"tok_embedding\"; did you mean tok_embeddings?"));
  EXPECT_THAT(list_refusal({{"tok_embeddings"}, {"layers.0", "layers.1"}, {"layers.2", "norm", "output"}}),
              AllOf(HasSubstr("(3 lists) makes 3 stages, which must be a multiple"), HasSubstr("give it 2 lists")));
  const std::vector<StageModules> five = {{"tok_embeddings"}, {"layers.0"}, {"layers.1"}, {"layers.2"}, {"norm"}};
  EXPECT_THAT(list_refusal(five, false), HasSubstr("give it 4 or 6 lists"));
  EXPECT_THAT(list_refusal({{"tok_embeddings", "layers.0"}, {"layers.1", "layers.2", "norm", "output"}}, false),
              HasSubstr("makes 1 stage per rank"));
  EXPECT_THAT(list_refusal({{}, {"tok_embeddings", "layers.0", "layers.1", "layers.2", "norm", "output"}}),
              HasSubstr("stage 0 is empty"));
}

}  // namespace
}  // namespace titan::pipeline
