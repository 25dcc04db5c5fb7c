#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/fs.h"
#include "base/text.h"
#include "pipeline/check_schedule.h"
#include "pipeline/schedule_kinds.h"
#include "pipeline/with_communication.h"
#include "tests/support/message_of.h"

namespace titan::pipeline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> texts(const PipelineSchedule& schedule) {
  std::vector<std::string> out;
  for (const auto& order : schedule.orders) {
    std::vector<std::string> words;
    for (const Step& step : order) words.push_back(to_text(step));
    out.push_back(join(words, " "));
  }
  return out;
}

// The expected orders come from PyTorch's classes (tests/golden). Those of 2 ranks and 4 microbatches are for every
// kind.
TEST(PipelineOrders, EqualPyTorchs) {
  const auto golden = nlohmann::json::parse(read_file(std::filesystem::path(TITAN_GOLDEN) / "pipeline.json"));
  EXPECT_EQ(golden.size(), 20u);
  for (const auto& [question, answer] : golden.items()) {
    std::istringstream words(question);
    std::string name;
    PipelineSize size;
    words >> name >> size.num_ranks >> size.stages_per_rank >> size.num_microbatches;
    const PipelineSchedule schedule = make_schedule(find_schedule_kind(name), size);
    EXPECT_EQ(texts(schedule), answer["order"].get<std::vector<std::string>>()) << question;
    EXPECT_EQ(texts(with_communication(schedule)), answer["lowered"].get<std::vector<std::string>>()) << question;
  }
}

TEST(PipelineOrders, NamesMayBeInAnyCase) {
  EXPECT_EQ(find_schedule_kind("interleaved1f1b").name, "Interleaved1F1B");
  EXPECT_EQ(find_schedule_kind("GPIPE").name, "GPipe");
  EXPECT_EQ(find_schedule_kind("pipelineschedulemulti").order_of_rank, nullptr);
  EXPECT_EQ(schedule_names().size(), 7u);
}

TEST(PipelineOrders, AnUnknownNameGetsTheNearest) {
  EXPECT_THAT(titan::test::message_of<ConfigError>([] { find_schedule_kind("ZBVZeroBuble"); }),
              AllOf(HasSubstr("there is no pipeline schedule \"ZBVZeroBuble\""),
                    HasSubstr("did you mean ZBVZeroBubble?"), HasSubstr("LoopedBFS")));
}

std::string size_refusal(const char* name, const PipelineSize& size) {
  return titan::test::message_of<ConfigError>([&] { make_schedule(find_schedule_kind(name), size); });
}

TEST(PipelineOrders, ASizeWithoutAScheduleSaysWhatToChange) {
  EXPECT_THAT(size_refusal("1F1B", {4, 1, 3}),
              AllOf(HasSubstr("at least as many microbatches as stages (4 stages), and there are 3 microbatches"),
                    HasSubstr("training.local_batch_size 4 times parallelism.pipeline_parallel_microbatch_size")));
  EXPECT_THAT(size_refusal("DualPipeV", {4, 2, 7}), HasSubstr("(8 stages), and there are 7 microbatches"));
  EXPECT_THAT(size_refusal("Interleaved1F1B", {4, 2, 9}), HasSubstr("training.local_batch_size 12 times"));
  EXPECT_THAT(size_refusal("InterleavedZeroBubble", {2, 3, 5}), HasSubstr("rounds of equally many microbatches"));
  EXPECT_THAT(size_refusal("GPipe", {4, 2, 8}), HasSubstr("exactly 1 stage per rank, and each has 2"));
  EXPECT_THAT(size_refusal("ZBVZeroBubble", {4, 3, 8}), HasSubstr("exactly 2 stages per rank"));
  EXPECT_THAT(size_refusal("LoopedBFS", {4, 1, 8}), AllOf(HasSubstr("at least 2 stages per rank"),
                                                          HasSubstr("parallelism.pipeline_parallel_layers_per_stage")));
  EXPECT_THAT(size_refusal("PipelineScheduleMulti", {4, 2, 8}),
              HasSubstr("parallelism.pipeline_parallel_schedule_csv"));
}

TEST(PipelineOrders, ASizeWithoutAScheduleIsToldInTheWordsOfACommand) {
  const SizeWords words{.schedule = "NAME",
                        .change_stages = {"set --stages ", ""},
                        .change_microbatches = {"set --microbatches ", ""},
                        .give_order = "name a file"};
  const auto refusal = [&](const char* name, const PipelineSize& size) {
    return titan::test::message_of<ConfigError>([&] { make_schedule(find_schedule_kind(name), size, words); });
  };
  EXPECT_THAT(refusal("ZBVZeroBubble", {4, 3, 8}), HasSubstr("each has 3; set --stages 2, or take another NAME"));
  EXPECT_THAT(refusal("1F1B", {4, 1, 3}), HasSubstr("for example, set --microbatches 4"));
  EXPECT_THAT(refusal("PipelineScheduleSingle", {2, 1, 2}), HasSubstr("; name a file, or take one of 1F1B"));
}

TEST(PipelineOrders, MicrobatchesDivideTheBatch) {
  EXPECT_EQ(num_microbatches(12, 3), 4);
  EXPECT_THAT(titan::test::message_of<ConfigError>([] { num_microbatches(12, 5); }),
              HasSubstr("training.local_batch_size (12) must be a multiple of "
                        "parallelism.pipeline_parallel_microbatch_size (5)"));
}

}  // namespace
}  // namespace titan::pipeline
