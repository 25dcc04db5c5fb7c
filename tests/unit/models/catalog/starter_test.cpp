#include "models/starter.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "config/command_line/program.h"
#include "config/load.h"
#include "models/catalog.h"
#include "models/from_folder.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace titan::models {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string starter(const std::string& model, std::optional<std::int64_t> gpus = {}) {
  StarterOptions options;
  options.model = model;
  options.gpus = gpus;
  return starter_config(options);
}

TEST(Starter, LoadsForEveryModelOnItsGpus) {
  for (const auto& [model, ranks] : std::vector<std::pair<std::string, std::int64_t>>{{"llama3/debugmodel", 1},
                                                                                      {"llama3/1B", 8},
                                                                                      {"llama3/3B", 8},
                                                                                      {"llama3/8B", 8},
                                                                                      {"llama3/70B", 64},
                                                                                      {"llama3/405B", 256},
                                                                                      {"llama2/7B", 8},
                                                                                      {"llama2/13B", 8},
                                                                                      {"llama2/70B", 64}}) {
    const config::LoadedConfig loaded = config::load_job_config_text(starter(model), "job.toml", {}, {}, ranks);
    EXPECT_THAT(loaded.warnings, IsEmpty()) << model;
    EXPECT_EQ(loaded.config.model.name + "/" + loaded.config.model.flavor, model);
    EXPECT_TRUE(loaded.config.checkpoint.enable);
  }
}

TEST(Starter, TheBatchSuitsTheGpus) {
  for (const std::int64_t gpus : {3, 8, 64, 100, 1024, 2560}) {
    const auto config = config::load_job_config_text(starter("llama3/8B", gpus), "job.toml", {}, {}, gpus).config;
    EXPECT_EQ(config.training.global_batch_size % gpus, 0) << gpus;
  }
  EXPECT_EQ(config::load_job_config_text(starter("llama3/8B", 64), "job.toml").config.training.global_batch_size, 128);
  EXPECT_EQ(config::load_job_config_text(starter("llama3/8B", 2560), "job.toml")
                .config.parallelism.data_parallel_replicate_degree,
            10);
}

TEST(Starter, TakesTheDataAndTheTokenizer) {
  StarterOptions options;
  options.dataset_path = "my data/train.jsonl";
  options.tokenizer = "tokenizers/mine";
  const config::JobConfig config = config::load_job_config_text(starter_config(options), "job.toml").config;
  EXPECT_EQ(config.training.dataset, "jsonl");
  EXPECT_EQ(config.training.dataset_path, "my data/train.jsonl");
  EXPECT_EQ(config.model.hf_assets_path, "tokenizers/mine");
}

TEST(Starter, TakesTheFolderOfAModel) {
  config::Program program;
  program.complete_model = complete_from_folder;
  config::set_program(program);
  const test::TemporaryFolder folder;
  folder.write("Tiny-7/config.json", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "vocab_size": 100,
      "intermediate_size": 180, "num_hidden_layers": 3, "num_attention_heads": 8, "max_position_embeddings": 512})");
  folder.write("Tiny-7/tokenizer.json", "{}");
  folder.write("Tiny-7/model.safetensors", "");
  StarterOptions options;
  options.from = (folder / "Tiny-7").string() + "/";
  const std::string text = starter_config(options);
  const config::LoadedConfig loaded = config::load_job_config_text(text, "job.toml");
  config::set_program({});
  EXPECT_THAT(loaded.warnings, IsEmpty());
  EXPECT_THAT(text, HasSubstr("# llama3 of " + *options.from + " on CPU"));
  EXPECT_EQ(loaded.config.job.dump_folder, "./outputs/Tiny-7");
  EXPECT_EQ(loaded.config.model.args.dim, 64);
  EXPECT_EQ(loaded.config.training.seq_len, 512);
  EXPECT_EQ(loaded.config.checkpoint.initial_load_path, *options.from);
  options.from = folder.path().string();
  EXPECT_THAT(test::message_of<ConfigError>([&] { starter_config(options); }),
              HasSubstr("expected the folder of a model in Hugging Face's format"));
}

TEST(Starter, RefusesWhatCannotBe) {
  EXPECT_THAT(test::message_of<ConfigError>([] { starter("llama3/8b"); }), HasSubstr("did you mean llama3/8B?"));
  EXPECT_THAT(test::message_of<ConfigError>([] { starter("70B"); }),
              HasSubstr("did you mean llama3/70B or llama2/70B?"));
  EXPECT_THAT(test::message_of<ConfigError>([] { starter("llama3/70B", 8); }),
              HasSubstr("use 64 GPUs of 80 GB or more"));
}

}  // namespace
}  // namespace titan::models
