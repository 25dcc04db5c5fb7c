// Tests how a configuration becomes stages and an order, and what is said about wrong ones.
#include "config/pipeline_plan.h"

#include <gmock/gmock.h>

#include "base/fs.h"
#include "config/validate.h"
#include "support.h"

namespace titan::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobConfig job(int ranks, const std::string& schedule) {
  JobConfig config;
  config.parallelism.pipeline_parallel_degree = ranks;
  config.parallelism.pipeline_parallel_schedule = schedule;
  config.training.local_batch_size = 4;
  return config;
}

TEST(PipelinePlan, DividesAModelAndSaysHow) {
  const auto plan = pipeline_plan(job(2, "interleaved1f1b"), 6);
  EXPECT_THAT(plan.stages_of_rank(1), ElementsAre(pipeline::StageModules{"layers.1", "layers.2"},
                                                  pipeline::StageModules{"layers.5", "norm", "output"}));
  EXPECT_EQ(plan.rank_of("layers.1.attention.wq.weight"), 1);
  EXPECT_EQ(plan.rank_of("tok_embeddings.weight"), 0);
  EXPECT_FALSE(plan.splits_backward());
  EXPECT_TRUE(pipeline_plan(job(2, "ZBVZeroBubble"), 6).splits_backward());
  EXPECT_EQ(plan.text(1),
            "4 microbatches through 4 stages; this rank has stages 1 (layers.1-2) and 3 (layers.5, norm, "
            "output); if stages take equal time, ranks wait for 11.1 % of it");
}

TEST(PipelinePlan, TakesStagesByName) {
  JobConfig config = job(2, "GPipe");
  config.parallelism.module_fqns_per_model_part = {{"tok_embeddings"}, {"layers.0", "layers.1", "norm", "output"}};
  EXPECT_THAT(pipeline_plan(config, 2).text(0), HasSubstr("this rank has stage 0 (tok_embeddings); if"));
  EXPECT_THAT(error_of([&] { pipeline_plan(config, 3); }), HasSubstr("layers.2 is in no stage; add it to one"));
}

TEST(PipelinePlan, AllFaultsThatDoNotHideEachOtherAreFound) {
  JobConfig config = job(2, "1F1B");
  std::vector<Fault> faults;
  EXPECT_TRUE(find_pipeline_plan(config, 6, faults));
  EXPECT_THAT(faults, IsEmpty());
  config.parallelism.pipeline_parallel_layers_per_stage = 3;
  config.parallelism.pipeline_parallel_microbatch_size = 3;
  EXPECT_FALSE(find_pipeline_plan(config, 6, faults));
  ASSERT_EQ(faults.size(), 2);
  EXPECT_THAT(faults[0].message, HasSubstr("makes 3 stages"));
  EXPECT_THAT(faults[1].message,
              HasSubstr("must be a multiple of parallelism.pipeline_parallel_microbatch_size (3); set it "
                        "to 3 or 6, or parallelism.pipeline_parallel_microbatch_size to 2 or 4"));
}

// The errors are those of the file with its name, and name its key, which says where the run got it from.
TEST(PipelinePlan, BlamesTheFileOfAnOrder) {
  const std::string file = ::testing::TempDir() + "order.csv";
  JobConfig config = job(2, "1F1B");
  config.training.local_batch_size = 2;
  config.parallelism.pipeline_parallel_schedule_csv = file;
  const auto fault_of = [&](const std::string& text) -> std::string {
    write_file_atomically(file, text);
    try {
      pipeline_plan(config, 2);
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.keys(), ElementsAre("parallelism.pipeline_parallel_schedule_csv"));
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(fault_of("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"), "no error");
  EXPECT_EQ(fault_of("0F0,0F1,0B0,0B1\n1F0,1F1,1B0\n"),
            file + ": rank 1, after its 3 actions: 1B1 is missing, or 1I1 and 1W1");
  EXPECT_THAT(fault_of("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"), HasSubstr(file + ": no rank can go on: "));
  EXPECT_EQ(fault_of("0F0,0B0\n1F0,1B0\n"), file +
                                                ": expected 2 microbatches (training.local_batch_size / "
                                                "parallelism.pipeline_parallel_microbatch_size), found 1");
  config.parallelism.pipeline_parallel_schedule_csv = file + ".missing";
  EXPECT_EQ(fault_of(""), "cannot read " + file + ".missing: No such file or directory");
}

TEST(PipelinePlan, KeysThatNothingReadsAreWarnedOf) {
  JobConfig config = job(1, "Interleaved1F1B");
  EXPECT_THAT(validate(config), IsEmpty());
  config.parallelism.module_fqns_per_model_part = {{"tok_embeddings"}};
  config.parallelism.pipeline_parallel_layers_per_stage = 2;
  config.parallelism.pipeline_parallel_schedule_csv = "order.csv";
  const auto about = [](const char* key) { return HasSubstr(std::string("parallelism.") + key + " is not read: "); };
  EXPECT_THAT(validate(config),
              ElementsAre(about("module_fqns_per_model_part"), about("pipeline_parallel_layers_per_stage"),
                          about("pipeline_parallel_schedule_csv")));
}

}  // namespace
}  // namespace titan::config
