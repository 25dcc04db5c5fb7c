#include "config/paths.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "support.h"

namespace titan::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

class Paths : public ::testing::Test {
 protected:
  Paths() : folder_(fs::path(::testing::TempDir()) / "titan_paths_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream(folder_ / "data.jsonl") << "{}\n";
    good_.job.dump_folder = folder_ / "run/deep";
    good_.training.dataset_path = folder_ / "data.jsonl";
  }
  ~Paths() override { fs::remove_all(folder_); }

  template <class Change>
  std::vector<std::string> wrong(Change change) const {
    JobConfig config = good_;
    change(config);
    return messages_of(find_wrong_paths(config));
  }

  fs::path folder_;
  JobConfig good_;
};

TEST_F(Paths, NothingIsWrongAndNothingIsMade) {
  EXPECT_THAT(find_wrong_paths(good_), IsEmpty());
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(Paths, Data) {
  EXPECT_THAT(
      wrong([](JobConfig& c) { c.training.dataset_path = "none"; }),
      ElementsAre(HasSubstr("training.dataset_path = \"none\": there is no such file or folder, looked from /")));
  EXPECT_THAT(wrong([](JobConfig& c) { c.training.dataset_path.reset(); }), ElementsAre(HasSubstr("--config FILE")));
  const auto indexed = [&](const char* prefix) {
    return wrong([&](JobConfig& c) {
      c.training.dataset = "indexed";
      c.training.dataset_path = folder_ / prefix;
    });
  };
  // TorchTitan's test data has its TorchTitan path; for data that TorchTitan streams, the message says what to do.
  const auto of_kind = [&](const char* kind) {
    return wrong([&](JobConfig& c) {
      c.job.config_file = "job.toml";
      c.training.dataset = kind;
      c.training.dataset_path.reset();
    });
  };
  EXPECT_THAT(of_kind("c4_test"), ElementsAre(HasSubstr("./tests/assets/c4_test, where TorchTitan has the data")));
  EXPECT_THAT(of_kind("c4"), ElementsAre(HasSubstr("nothing is streamed here. Download files")));
  EXPECT_THAT(of_kind("text"), ElementsAre("training.dataset_path is not set: no data to train on; set it to a file or "
                                           "folder"));
  EXPECT_THAT(indexed("dat"), IsEmpty());  // a prefix of file names
  EXPECT_THAT(indexed("date"), ElementsAre(HasSubstr("training.dataset_path")));
  const auto held_out = [&](bool enable) {
    return wrong([&](JobConfig& c) {
      c.validation.enable = enable;
      c.validation.dataset_path = "/none";
    });
  };
  EXPECT_THAT(held_out(true), ElementsAre("validation.dataset_path = \"/none\": there is no such file or folder"));
  EXPECT_THAT(held_out(false), IsEmpty());
  EXPECT_THAT(wrong([](JobConfig& c) { c.validation.enable = true; }),
              ElementsAre(HasSubstr("validation.enable needs validation.dataset_path: TorchTitan streams")));
}

TEST_F(Paths, DumpFolder) {
  EXPECT_THAT(wrong([&](JobConfig& c) { c.job.dump_folder = folder_ / "data.jsonl/run"; }),
              ElementsAre(HasSubstr("data.jsonl is a file, not a folder")));
  EXPECT_THAT(wrong([](JobConfig& c) { c.job.dump_folder = "~/run"; }), ElementsAre(HasSubstr("~ is not expanded")));
  fs::create_directory_symlink("nowhere", folder_ / "link");
  const auto below_link = [&] { return wrong([&](JobConfig& c) { c.job.dump_folder = folder_ / "link/run"; }); };
  EXPECT_THAT(below_link(), ElementsAre(HasSubstr("link is a link to nowhere, which is not there")));
  fs::create_directory(folder_ / "nowhere");
  EXPECT_THAT(below_link(), IsEmpty());
}

TEST_F(Paths, Checkpoints) {
  const auto load_step = [&](std::int64_t step) {
    return wrong([&](JobConfig& c) {
      c.checkpoint.enable = true;
      c.checkpoint.load_step = step;
    });
  };
  EXPECT_THAT(load_step(10), ElementsAre(HasSubstr("has no checkpoints; leave it out")));
  EXPECT_THAT(load_step(0), ElementsAre(HasSubstr("has no checkpoints; leave it out")));
  for (const char* name : {"step-100", "step-20", "step-30.tmp", "other"})
    fs::create_directories(folder_ / "run/deep/checkpoint" / name);
  EXPECT_THAT(load_step(100), IsEmpty());
  EXPECT_THAT(load_step(-1), IsEmpty());
  EXPECT_THAT(load_step(30), ElementsAre(HasSubstr("has the steps 20, 100; use one of them")));
  for (const char* folder : {"empty", "locked/.checkpoints.owner"})
    fs::create_directories(folder_ / "run/deep" / folder);
  for (const char* without : {"new", "empty", "locked"})
    EXPECT_THAT(wrong([&](JobConfig& c) {
                  c.checkpoint.enable = true;
                  c.checkpoint.folder = without;
                  c.checkpoint.initial_load_path = "/none";
                }),
                ElementsAre(HasSubstr("checkpoint.initial_load_path = \"/none\"")));
}

TEST_F(Paths, NamesThatWouldBeTooLongForASave) {
  const auto of_length = [&](std::size_t length, bool saves) {
    return wrong([&](JobConfig& c) {
      c.job.dump_folder = folder_ / "run";
      while (c.job.dump_folder.size() + 100 < length) c.job.dump_folder += "/" + std::string(80, 'x');
      c.job.dump_folder += "/" + std::string(length - c.job.dump_folder.size() - 1, 'x');
      c.training.steps = 1000;
      c.checkpoint.enable = saves;
    });
  };
  // "/checkpoint/step-1000.tmp/model.safetensors.index.json.tmp" has 58 characters.
  EXPECT_THAT(of_length(4095 - 58, true), IsEmpty());
  EXPECT_THAT(of_length(4095 - 58 + 1, true), ElementsAre(HasSubstr("job.dump_folder: the path ")));
  EXPECT_THAT(of_length(4095 - 58 + 1, false), IsEmpty());
  EXPECT_THAT(of_length(4095, false), ElementsAre(HasSubstr("and at most 4065 leave room")));
  const auto named = [&](std::size_t length) {
    return wrong([&](JobConfig& c) {
      c.checkpoint.enable = true;
      c.checkpoint.folder = std::string(length, 'x');
    });
  };
  EXPECT_THAT(named(255), IsEmpty());
  EXPECT_THAT(named(256), ElementsAre(HasSubstr("has 256 characters, and at most 255 leave room")));
}

TEST_F(Paths, WeightsOfHuggingFaceThatTrainingStartsFrom) {
  good_.model.hf_assets_path = "assets";
  EXPECT_EQ(initial_hugging_face_folder(good_), "");
  good_.checkpoint.enable = true;
  good_.checkpoint.initial_load_path = "a/b";
  EXPECT_EQ(initial_hugging_face_folder(good_), "");
  good_.checkpoint.initial_load_in_hf = true;
  EXPECT_EQ(initial_hugging_face_folder(good_), "a/b");
  good_.checkpoint.initial_load_path = "a/b/model.safetensors";
  EXPECT_EQ(initial_hugging_face_folder(good_), "a/b");
  good_.checkpoint.initial_load_path = std::nullopt;
  EXPECT_EQ(initial_hugging_face_folder(good_), "assets");
}

TEST_F(Paths, FaultsCarryTheirKeys) {
  good_.job.dump_folder = "~/run";
  good_.training.dataset_path = "none";
  good_.validation.enable = true;
  good_.checkpoint.enable = true;
  good_.checkpoint.load_step = 7;
  std::vector<std::vector<std::string>> keys;
  for (const Fault& fault : find_wrong_paths(good_)) keys.push_back(fault.keys);
  EXPECT_THAT(keys,
              ElementsAre(ElementsAre("job.dump_folder"), ElementsAre("validation.enable", "validation.dataset_path"),
                          ElementsAre("training.dataset_path"), ElementsAre("checkpoint.load_step")));
}

}  // namespace
}  // namespace titan::config
