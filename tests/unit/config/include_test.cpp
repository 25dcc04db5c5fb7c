// Tests include = [...] with real files.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "support.h"

namespace titan::config {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class Include : public ::testing::Test {
 protected:
  Include() : folder_(fs::path(::testing::TempDir()) / "titan_include_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "sub");
  }
  ~Include() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  static LoadedConfig load_file(const std::string& path) { return load_job_config(parse({"--config", path})); }
  static std::string error(const std::string& path) {
    return error_of([&] { load_file(path); });
  }

  fs::path folder_;
};

TEST_F(Include, LaterFilesAndTheIncludingOneWin) {
  write("a.toml", "[training]\nsteps = 1000\nseq_len = 64\nlocal_batch_size = 1");
  write("sub/b.toml", "include = ['c.toml']\n[training]\nseq_len = 128\nlocal_batch_size = 2");
  write("sub/c.toml", "[training]\nlocal_batch_size = 3\nmax_norm = 0.5");
  const auto loaded = load_file(
      write("run.toml", "include = ['a.toml', 'sub/b.toml']\n[training]\nlocal_batch_size = 4\n[debug]\nseed = 1"));
  const Training& training = loaded.config.training;
  EXPECT_EQ(training.steps, 1000);          // only in a
  EXPECT_EQ(training.seq_len, 128);         // b comes after a
  EXPECT_EQ(training.local_batch_size, 4);  // the including file wins
  EXPECT_EQ(training.max_norm, 0.5);        // included by b, relative to b
  EXPECT_THAT(loaded.origins.at("training.max_norm").place(), EndsWith("sub/c.toml:3"));
  EXPECT_THAT(loaded.origins.at("debug.seed").place(), EndsWith("run.toml:5"));
  EXPECT_EQ(loaded.config.job.config_file, (folder_ / "run.toml").string());
}

TEST_F(Include, OneFileByTwoWays) {
  write("base.toml", "[training]\nsteps = 1000");
  write("a.toml", "include = ['base.toml']");
  write("b.toml", "include = ['base.toml']");
  EXPECT_EQ(load_file(write("run.toml", "include = ['a.toml', 'b.toml']")).config.training.steps, 1000);
}

TEST_F(Include, CirclesNameTheirFiles) {
  write("a.toml", "include = ['sub/b.toml']");
  const std::string b = write("sub/b.toml", "include = ['../a.toml']");
  const std::string message = error(write("run.toml", "include = ['a.toml']"));
  const std::string a = (folder_ / "a.toml").string();
  EXPECT_THAT(message, AllOf(::testing::StartsWith(b + ":1:12: error: include: a circle: "),
                             HasSubstr(a + " -> " + b + " -> " + a), ::testing::Not(HasSubstr("run.toml ->"))));
}

TEST_F(Include, MissingFilesNameTheChain) {
  write("a.toml", "include = ['none.toml']");
  const std::string message = error(write("run.toml", "include = ['a.toml']\n[training]\nsteps = 0"));
  EXPECT_THAT(message,
              AllOf(HasSubstr("a.toml:1:12: error: include: cannot read"),
                    HasSubstr("run.toml -> " + (folder_ / "a.toml").string() + " -> "), HasSubstr("2 errors")));
}

TEST_F(Include, ErrorsOfAllFilesInTheOrderOfReading) {
  write("a.toml", "[training]\nsteps = 'x'\n[optimizer]\nlr = -1.0");
  const std::string message = error(write("run.toml", "include = ['a.toml']\n[training]\nseq_len = 0"));
  const auto run = message.find("run.toml:3:"), a2 = message.find("a.toml:2:"), a4 = message.find("a.toml:4:");
  ASSERT_NE(a4, std::string::npos) << message;
  EXPECT_LT(run, a2);
  EXPECT_LT(a2, a4);
}

TEST_F(Include, ValuesThatAreOverriddenMayBreakRules) {
  write("a.toml", "[memory_estimation]\nenable = true");
  EXPECT_EQ(error(write("run.toml", "include = ['a.toml']\n[memory_estimation]\nenable = false")), "no error");
}

TEST_F(Include, MustBeAListOfNames) {
  EXPECT_THAT(error(write("run.toml", "include = 'a.toml'")), HasSubstr("write [\"a.toml\"]"));
  EXPECT_THAT(error(write("run.toml", "include = [1]")), HasSubstr("expected a file name; found the integer 1"));
  EXPECT_THAT(error(write("run.toml", "[job]\ninclude = ['a.toml']")), HasSubstr("above the first [table]"));
}

}  // namespace
}  // namespace titan::config
