#include "models/starter.h"

#include <gmock/gmock.h>

#include <algorithm>

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
    const std::int64_t ranks_with_data = gpus / config.parallelism.tensor_parallel_degree;
    EXPECT_EQ(config.training.global_batch_size % ranks_with_data, 0) << gpus;
    EXPECT_LE(config.training.global_batch_size, std::max<std::int64_t>(128, gpus / 8)) << gpus;
  }
  EXPECT_EQ(config::load_job_config_text(starter("llama3/8B", 64), "job.toml").config.training.global_batch_size, 128);
  EXPECT_EQ(config::load_job_config_text(starter("llama3/8B", 8192), "job.toml")
                .config.parallelism.data_parallel_replicate_degree,
            4);
}

config::JobConfig started(const std::string& model, std::int64_t gpus, std::optional<std::int64_t> seq_len = {}) {
  StarterOptions options;
  options.model = model;
  options.gpus = gpus;
  options.seq_len = seq_len;
  return config::load_job_config_text(starter_config(options), "job.toml", {}, {}, gpus).config;
}

// With the 128 sequences of a batch, 1024 ranks do not get one each.
TEST(Starter, RanksShareLayersIfThereAreTooFewSequences) {
  EXPECT_EQ(started("llama3/8B", 128).parallelism.tensor_parallel_degree, 1);
  const auto config = started("llama3/8B", 1024);
  EXPECT_EQ(config.parallelism.tensor_parallel_degree, 8);
  EXPECT_EQ(config.parallelism.context_parallel_degree, 1);
  EXPECT_EQ(config.training.global_batch_size, 128);
}

TEST(Starter, RanksShareSequencesThatDoNotFit) {
  EXPECT_EQ(started("llama3/8B", 64).parallelism.context_parallel_degree, 1);
  const auto config = started("llama3/8B", 64, 524288);
  EXPECT_EQ(config.training.seq_len, 524288);
  EXPECT_EQ(config.activation_checkpoint.mode, "full");
  EXPECT_EQ(config.parallelism.tensor_parallel_degree, 8);
  EXPECT_GT(config.parallelism.context_parallel_degree, 1);
  EXPECT_EQ(config.parallelism.pipeline_parallel_degree, 1);
  StarterOptions options;
  options.model = "llama3/8B";
  options.seq_len = 1 << 22;
  EXPECT_GT(started("llama3/8B", 512, 1 << 22).parallelism.context_parallel_degree, 8);
  EXPECT_THAT(starter_config(options), HasSubstr("context_parallel_degree = "));  // with GPUs enough
}

// Each of 256 data-parallel ranks would have one of 256 sequences; a pipeline of 4 gathers its weights for 4 at once.
TEST(Starter, LargeModelsHaveAPipelineIfAGatherIsForOneSequence) {
  const auto config = started("llama3/70B", 2048);
  EXPECT_EQ(config.parallelism.tensor_parallel_degree, 8);
  EXPECT_EQ(config.parallelism.pipeline_parallel_degree, 4);
  EXPECT_EQ(config.training.local_batch_size, 4);
  EXPECT_EQ(config.training.global_batch_size, 256);
  EXPECT_EQ(started("llama3/70B", 512).parallelism.pipeline_parallel_degree, 1);
  EXPECT_EQ(started("llama3/8B", 4096).parallelism.pipeline_parallel_degree, 1);
  EXPECT_EQ(started("llama3/405B", 8192).parallelism.pipeline_parallel_degree, 16);
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
  EXPECT_THAT(test::message_of<ConfigError>([] { started("llama3/8B", 9, 1 << 20); }),
              HasSubstr("--gpus 9: llama3/8B with sequences of 1,048,576 tokens does not fit"));
}

}  // namespace
}  // namespace titan::models
