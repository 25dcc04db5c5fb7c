#include "config/command_line/variables.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "config/command_line/help.h"
#include "config/keys/fields.h"
#include "support.h"

namespace titan::config {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> warnings_of(const Environment& environment) {
  return load_job_config_text("", "t.toml", {}, environment).warnings;
}

std::string error_in(const Environment& environment) {
  return error_of([&] { load_job_config_text("", "t.toml", {}, environment); });
}

TEST(Variables, OneThatNothingReadsGetsAWarningWithTheNearest) {
  for (const auto& [name, hint] : std::vector<std::pair<std::string, std::string>>{
           {"TITAN_TRAINING_STEPS", "did you mean TITAN_TRAINING__STEPS?"},
           {"TITAN_STEPS", "did you mean TITAN_TRAINING__STEPS or TITAN_VALIDATION__STEPS?"},
           {"TITAN_LR", "did you mean TITAN_OPTIMIZER__LR?"},
           {"TITAN_CPU_KERNEL", "did you mean TITAN_CPU__KERNELS?"},
           {"TITAN_SHARED_MEMORI", "did you mean TITAN_SHARED_MEMORY?"},
           {"TITAN_CONFIG", "use --config FILE"},
           {"TITAN_NPROC", "use the flag --nproc"},
           {"TITAN_QWERTYUIOP", "docs/config.md lists those that there are"}})
    EXPECT_THAT(warnings_of({{name, "5"}}),
                ElementsAre("environment: " + name + " is set, and nothing reads it; " + hint));
}

TEST(Variables, KnownOnesAreNoNews) {
  Environment all;
  for (const Variable& variable : variables())
    all.emplace_back(variable.name, variable.choices.substr(0, variable.choices.find(',')));
  all.emplace_back("TITAN_TRAINING__STEPS", "500");
  EXPECT_THAT(warnings_of(all), IsEmpty());
}

TEST(Variables, AValueThatIsNotUnderstoodIsRefused) {
  EXPECT_EQ(error_in({{"TITAN_SHARED_MEMORY", "no"}}),
            "environment: error: TITAN_SHARED_MEMORY: expected 0 or 1; found \"no\"");
  EXPECT_THAT(error_in({{"TITAN_DEVICE_COMM", "mpi"}, {"TITAN_HOST_ARENA", "off"}}), HasSubstr("2 errors"));
  EXPECT_EQ(error_in({{"TITAN_SHARED_MEMORY", "1"}}), "no error");
}

// Collects the names of variables that `text` reads or sets: "TITAN_X" and "TITAN_X=1" in C++ and Python, $TITAN_X,
// ${TITAN_X} and NAME=TITAN_X in shell, ENV{TITAN_X} in CMake (whose own variables look like the shell's).
void collect(const std::string& text, bool is_cmake, std::set<std::string>& names) {
  for (auto at = text.find("TITAN_"); at != std::string::npos; at = text.find("TITAN_", at + 1)) {
    const std::string before = text.substr(at < 4 ? 0 : at - 4, at < 4 ? at : 4);
    const auto end = text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", at);
    const std::string name = text.substr(at, end - at);
    const bool is_shell = before.ends_with("$") || before.ends_with("${") || before.ends_with("=");
    const bool is_read = is_cmake ? before == "ENV{" : is_shell || before.ends_with("\"") || before.ends_with("(\"");
    if (is_read && name != "TITAN_" && !names_a_key(name)) names.insert(name);
  }
}

TEST(Variables, AreThoseOfTheSources) {
  std::set<std::string> found, listed;
  for (const char* folder : {"src", "apps", "models", "data", "cmake", "scripts", "deploy", "benchmarks",
                             "tests/support", "tests/integration", "tests/reference", "tests/golden", ".ci"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(TITAN_SOURCE_DIR) / folder)) {
      if (!entry.is_regular_file() || entry.path().filename() == "variables.cpp") continue;
      std::ifstream file(entry.path());
      const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      const std::string name = entry.path().filename();
      const bool is_cmake = name == "CMakeLists.txt" || name.ends_with(".cmake") || name.ends_with(".cmake.in");
      collect(text, is_cmake, found);
    }
  }
  for (const Variable& variable : variables()) listed.insert(std::string(variable.name));
  EXPECT_EQ(found, listed) << "what is read stands in src/config/command_line/variables.cpp, and nothing else does";
}

TEST(Variables, StandInTheDocs) {
  for (const Variable& variable : variables())
    EXPECT_THAT(docs_text(), HasSubstr("| `" + std::string(variable.name) + "` | "));
}

}  // namespace
}  // namespace titan::config
