#include "config/print.h"

#include <gmock/gmock.h>

#include "config/fields.h"
#include "support.h"

namespace titan::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ToToml, DefaultsLoadBack) { EXPECT_EQ(load(to_toml(JobConfig{})).config, JobConfig{}); }

TEST(ToToml, ChangedValuesLoadBackExactly) {
  JobConfig config;
  config.job.description = "tab\t quote\" back\\slash\nnew line \x01 ü";
  config.optimizer.lr = 0.1 + 0.2;  // 17 digits
  config.optimizer.eps = 1e-300;
  config.training.max_norm = 3;  // a whole number must stay a number
  config.lr_scheduler.decay_ratio = 1.0 / 3;
  config.debug.seed = 9223372036854775807;
  config.checkpoint.exclude_from_loading = {"optimizer", "dataloader"};
  config.parallelism.module_fqns_per_model_part = StringLists{{"a", "b"}, {}};
  config.parallelism.context_parallel_load_balancer = std::nullopt;
  config.model.args.rope_scaling_args.low_freq_factor = 1.5;
  config.model.args.depth_init = false;
  config.compile.components = {};
  EXPECT_EQ(load(to_toml(config)).config, config);
}

TEST(Help, NamesEveryKeyWithItsDefault) {
  const std::string help = help_text();
  for (const Field& field : fields()) {
    EXPECT_THAT(help, HasSubstr("--" + field.key + " ("));
    EXPECT_THAT(help, HasSubstr(field.doc));
  }
  EXPECT_THAT(help, HasSubstr("--training.seq_len (an integer, at least 2; default 2048)"));
  EXPECT_THAT(help, HasSubstr("only the default so far: there is no compiler in this program"));
}

TEST(Help, NamesEveryModeAndOnlyFlagsThatExist) {
  const std::string help = help_text();
  for (const char* flag : {"config", "dry-run", "world-size", "nproc", "print-config", "version", "help"})
    EXPECT_THAT(help, HasSubstr(std::string("\n  --") + flag)) << flag;
  for (auto at = help.find("\n  --"); at != std::string::npos; at = help.find("\n  --", at + 1)) {
    const std::string flag = help.substr(at + 3, help.find_first_of(" ,\n", at + 3) - at - 3);
    for (const std::string& error : parse({flag}).errors) EXPECT_THAT(error, Not(HasSubstr("unknown flag"))) << flag;
  }
}

}  // namespace
}  // namespace titan::config
