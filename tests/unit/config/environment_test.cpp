#include "config/command_line/environment.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "support.h"

namespace titan::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

JobConfig config_in(const Environment& environment, const std::vector<std::string>& args = {}) {
  return load_job_config_text("[training]\nsteps = 300", "t.toml", parse(args), environment).config;
}

std::vector<std::string> errors_of(const Environment& environment) {
  std::vector<std::string> errors;
  parse_environment(environment, errors);
  return errors;
}

TEST(Environment, WinsOverTheFileAndLosesToTheCommandLine) {
  EXPECT_EQ(config_in({}).training.steps, 300);
  EXPECT_EQ(config_in({{"TITAN_TRAINING__STEPS", "400"}}).training.steps, 400);
  EXPECT_EQ(config_in({{"TITAN_TRAINING__STEPS", "400"}}, {"--training.steps=500"}).training.steps, 500);
}

TEST(Environment, EveryKeyHasAVariable) {
  EXPECT_EQ(variable_of("training.dataloader.num_workers"), "TITAN_TRAINING__DATALOADER__NUM_WORKERS");
  for (const Field& field : fields()) {
    std::vector<std::string> errors;
    const auto given = parse_environment({{variable_of(field.key), "\x01"}}, errors);
    for (const std::string& error : errors) EXPECT_THAT(error, Not(HasSubstr("there is no key")));
    for (const Override& item : given) EXPECT_EQ(item.key, field.key);
  }
}

TEST(Environment, ValuesAreWrittenAsOnTheCommandLine) {
  const JobConfig config = config_in({{"TITAN_CHECKPOINT__ENABLE", "1"},
                                      {"TITAN_CHECKPOINT__EXCLUDE_FROM_LOADING", "optimizer,dataloader"},
                                      {"TITAN_LR_SCHEDULER__DECAY_RATIO", "None"},
                                      {"TITAN_MODEL__ARGS__ROPE_SCALING_ARGS__SCALING_FACTOR", "8"}});
  EXPECT_TRUE(config.checkpoint.enable);
  EXPECT_THAT(config.checkpoint.exclude_from_loading, ElementsAre("optimizer", "dataloader"));
  EXPECT_EQ(config.model.args.rope_scaling_args.scaling_factor, 8.0);
}

TEST(Environment, UnknownVariablesGetTheNearest) {
  EXPECT_THAT(errors_of({{"TITAN_TRAINING__STESP", "4"}}),
              ElementsAre("environment: error: TITAN_TRAINING__STESP: there is no key training.stesp; did you mean "
                          "TITAN_TRAINING__STEPS?"));
  EXPECT_THAT(errors_of({{"TITAN_TRAINING__BATCH_SIZE", "4"}}),
              ElementsAre(HasSubstr("training.local_batch_size now")));
  EXPECT_THAT(errors_of({{"TITAN___", "4"}}), ElementsAre(HasSubstr("there is no key")));
  EXPECT_THAT(errors_of({{"TITAN_JOB__CONFIG_FILE", "a.toml"}}), ElementsAre(HasSubstr("use --config a.toml")));
}

TEST(Environment, AllErrorsAtOnce) {
  const std::string error = error_of([] {
    config_in({{"TITAN_TRAINING__STEPS", "x"}, {"TITAN_OPTIMIZER__LR", "-1"}, {"TITAN_A__B", "1"}}, {"--bogus"});
  });
  EXPECT_THAT(error, HasSubstr("4 errors"));
  EXPECT_THAT(error, HasSubstr("environment: error: TITAN_OPTIMIZER__LR: expected a number, at least 0; found -1.0"));
}

TEST(Environment, OfThisProcess) {
  setenv("TITAN_TRAINING__STEPS", "17", 1);
  setenv("TITAN_TRAINING__SEQ_LEN", "", 1);     // not set
  setenv("TITAN_LOG_SAMPLES", "somewhere", 1);  // another kind of variable
  const auto found = titan_variables();
  EXPECT_THAT(found,
              ::testing::IsSupersetOf({Pair("TITAN_TRAINING__STEPS", "17"), Pair("TITAN_LOG_SAMPLES", "somewhere")}));
  EXPECT_THAT(found, Not(Contains(Pair("TITAN_TRAINING__SEQ_LEN", ::testing::_))));
  EXPECT_EQ(load_job_config(parse({})).config.training.steps, 17);
  for (const char* name : {"TITAN_TRAINING__STEPS", "TITAN_TRAINING__SEQ_LEN", "TITAN_LOG_SAMPLES"}) unsetenv(name);
}

}  // namespace
}  // namespace titan::config
