// model.from: what a folder decides, and what it leaves to the user.
#include "models/from_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "config/command_line/program.h"
#include "config/keys/changes.h"
#include "config/keys/print.h"
#include "config/load.h"
#include "models/catalog.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace titan::models {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kQwen2 = R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "intermediate_size": 180,
    "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 100,
    "rope_theta": 5e5, "tie_word_embeddings": true, "max_position_embeddings": 4096,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}})";

class FromFolder : public testing::Test {
 protected:
  FromFolder() {
    config::Program program;
    program.complete_model = complete_from_folder;
    program.check_model = check_model;
    config::set_program(program);
    write("config.json", kQwen2);
    write("tokenizer.json", "{}");
    write("model.safetensors", "");
  }
  ~FromFolder() override { config::set_program({}); }

  void write(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  std::string from() const { return "[model]\nfrom = \"" + folder_.path().string() + "\"\n"; }
  config::LoadedConfig load(const std::string& more = "") const {
    return config::load_job_config_text(from() + more, "t.toml");
  }
  std::string fault(const std::string& more = "") const {
    return test::message_of<ConfigError>([&] { load(more); });
  }

  test::TemporaryFolder folder_;
};

TEST_F(FromFolder, DecidesTheModelItsTokenizerAndItsWeights) {
  const config::JobConfig config = load().config;
  EXPECT_EQ(config.model.name, "qwen2");
  EXPECT_EQ(entry_of(config.model).decoder(config.model), entry_of_config(kQwen2, "c").read_config(kQwen2, "c"));
  EXPECT_EQ(config.model.hf_assets_path, folder_.path());
  EXPECT_TRUE(config.checkpoint.enable);
  EXPECT_TRUE(config.checkpoint.initial_load_in_hf);
  EXPECT_EQ(config.checkpoint.initial_load_path, folder_.path().string());
}

TEST_F(FromFolder, GivenValuesWin) {
  const config::JobConfig config = load(
                                       "hf_assets_path = \"other\"\n[model.args]\nmax_seq_len = 2050\nrope_theta = 7\n"
                                       "[model.args.rope_scaling_args]\ntype = \"linear\"\nscaling_factor = 2\n"
                                       "[checkpoint]\ninitial_load_in_hf = false\n")
                                       .config;
  EXPECT_EQ(config.model.hf_assets_path, "other");
  const HubDecoder decoder = entry_of(config.model).decoder(config.model);
  EXPECT_EQ(decoder.max_seq_len, 2050);
  EXPECT_EQ(decoder.shape.rope_theta, 7);
  EXPECT_EQ(decoder.shape.rope_scaling, (RopeScaling{.type = RopeScalingType::kLinear, .scaling_factor = 2}));
  EXPECT_FALSE(config.checkpoint.enable);
  EXPECT_FALSE(config.checkpoint.initial_load_path);
}

TEST_F(FromFolder, ASavedConfigurationNeedsNoFolder) {
  const config::JobConfig config = load().config;
  write("config.json", R"({"architectures": ["GPT2LMHeadModel"]})");
  EXPECT_EQ(config::load_job_config_text(config::to_toml(config), "config.toml").config.model, config.model);
  fs::remove_all(folder_.path());
  EXPECT_EQ(config::load_job_config_text(config::to_toml(config), "config.toml").config.model, config.model);
  // A run may go on when the folder has another name.
  config::JobConfig moved = config;
  moved.model.from = "elsewhere";
  EXPECT_TRUE(config::find_changes(config::flatten(config), moved).empty());
  moved.model.args.dim = 32;
  EXPECT_EQ(config::find_changes(config::flatten(config), moved).size(), 1u);
}

TEST_F(FromFolder, RefusesWhatContradictsIt) {
  EXPECT_THAT(fault("flavor = \"8B\"\n"), HasSubstr("t.toml:3:10: error: model.flavor has no effect"));
  EXPECT_THAT(fault("name = \"llama3\"\n"), HasSubstr("the model in model.from is a qwen2"));
  EXPECT_THAT(fault("[checkpoint]\nenable = false\n"), HasSubstr("checkpoint.enable is false"));
  EXPECT_THAT(fault("[model.args]\nqk_norm = true\n"), HasSubstr("model.args.qk_norm has no effect on qwen2"));
}

TEST_F(FromFolder, SaysWhatTheFolderLacks) {
  fs::remove(folder_.path() / "tokenizer.json");
  EXPECT_THAT(fault(), HasSubstr("has no tokenizer.json and no tokenizer.model: set model.hf_assets_path"));
  EXPECT_EQ(fault("hf_assets_path = \"t\"\n"), "no error");
  fs::remove(folder_.path() / "model.safetensors");
  EXPECT_THAT(load("hf_assets_path = \"t\"\n").warnings, testing::Contains(HasSubstr("starts from random weights")));
  write("pytorch_model.bin", "");
  EXPECT_THAT(fault("hf_assets_path = \"t\"\n"), HasSubstr("has its weights in a pickle"));
  write("config.json", R"({"architectures": ["GPT2LMHeadModel"]})");
  EXPECT_THAT(fault(), HasSubstr("the architecture GPT2LMHeadModel is unknown"));
  fs::remove(folder_.path() / "config.json");
  EXPECT_THAT(fault(), HasSubstr("there is no " + (folder_.path() / "config.json").string()));
  EXPECT_THAT(test::message_of<ConfigError>(
                  [] { config::load_job_config_text("[model]\nfrom = \"meta-llama/Llama-3.2-1B\"", "t.toml"); }),
              HasSubstr("hf download meta-llama/Llama-3.2-1B --local-dir FOLDER"));
}

// Every family's [model.args] can say what its config.json says.
TEST(ArgsOf, DescribeEveryFlavor) {
  for (const CatalogEntry& entry : catalog())
    for (const std::string& flavor : entry.flavors(entry.name)) {
      config::Model model;
      model.name = entry.name;
      model.flavor = flavor;
      HubDecoder decoder = entry.decoder(model);
      decoder.shape.block_causal = false;
      model.from = "";
      model.args = args_of(decoder, entry);
      EXPECT_EQ(entry.decoder(model), decoder) << entry.name << " " << flavor;
    }
}

}  // namespace
}  // namespace titan::models
