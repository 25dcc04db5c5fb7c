#include "apps/saved/model_source.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "base/error.h"
#include "models/registry.h"
#include "tests/support/message_of.h"

namespace titan {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointKind;
using Kind = ModelSource::Kind;

class FindModelSource : public testing::Test {
 protected:
  FindModelSource() {
    std::string pattern = fs::temp_directory_path() / "model-source-XXXXXX";
    folder_ = fs::weakly_canonical(::mkdtemp(pattern.data()));
    step_ = folder_ / "checkpoint" / "step-4";
    fs::create_directories(step_);
  }
  ~FindModelSource() override { fs::remove_all(folder_); }

  static void write(const fs::path& file) { std::ofstream(file) << "here"; }

  // Returns the file that was found, "the command line" or "nothing".
  std::string find(CheckpointKind kind, bool is_named = false) const {
    const auto source = find_model_source(step_, kind, is_named);
    if (!source) return "nothing";
    return source->kind == Kind::kNamed ? "the command line" : source->file.string();
  }

  fs::path folder_, step_;
};

TEST_F(FindModelSource, TheCheckpointsOwnFileIsBeforeTheCommandLineIsBeforeTheRun) {
  EXPECT_EQ(find(CheckpointKind::kDcp), "nothing");
  write(folder_ / "config.toml");
  EXPECT_EQ(find(CheckpointKind::kDcp), (folder_ / "config.toml").string());
  EXPECT_EQ(find(CheckpointKind::kDcp, /*is_named=*/true), "the command line");
  write(step_ / "titan.config.toml");
  EXPECT_EQ(find(CheckpointKind::kDcp), (step_ / "titan.config.toml").string());
  EXPECT_EQ(find(CheckpointKind::kDcp, /*is_named=*/true), (step_ / "titan.config.toml").string());
}

TEST_F(FindModelSource, HuggingFaceWeightsAreDescribedByTheirConfigJsonAlone) {
  write(folder_ / "config.toml");
  EXPECT_EQ(find(CheckpointKind::kHuggingFace), "nothing");
  write(step_ / "config.json");
  EXPECT_EQ(find(CheckpointKind::kHuggingFace), (step_ / "config.json").string());
  EXPECT_EQ(find(CheckpointKind::kHuggingFace, /*is_named=*/true), "the command line");
  write(step_ / "model.safetensors");
  EXPECT_EQ(config_beside(step_ / "model.safetensors").string(), (step_ / "config.json").string());
}

TEST(CheckSameModel, RefusesAnotherThanWasSaved) {
  config::Model model;
  model.name = "llama3";
  model.flavor = "debugmodel";
  const TrainSpec saved = models::make_train_spec(model, 16);
  const NamedModel words{"titan-train convert", "--config job.toml", "--config"};
  EXPECT_NO_THROW(check_same_model(saved, words, saved, "step-4/titan.config.toml"));
  model.flavor = "8B";
  EXPECT_EQ(test::message_of<ConfigError>([&] {
              check_same_model(models::make_train_spec(model, 16), words, saved, "step-4/titan.config.toml");
            }),
            "titan-train convert: error: --config job.toml describes another model than the one that was saved "
            "(step-4/titan.config.toml): leave --config out");
}

}  // namespace
}  // namespace titan
