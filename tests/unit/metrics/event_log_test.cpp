#include "metrics/event_log.h"

#include <gmock/gmock.h>

#include <fstream>

#include "base/fs.h"
#include "base/text.h"
#include "tests/support/temporary_folder.h"

namespace titan::metrics {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Events : public ::testing::Test {
 protected:
  bool is_there() const { return std::filesystem::exists(folder_ / "events.jsonl"); }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& line : split(read_file(folder_ / "events.jsonl"), '\n'))
      if (!line.empty()) out.push_back(nlohmann::json::parse(line)["event"]);
    return out;
  }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

TEST_F(Events, WaitForTheFirstStep) {
  EventLog log(folder_, true);
  log.append("start", 0, {{"ranks", 2}});
  EXPECT_FALSE(is_there());
  log.begin(/*is_fresh=*/true);
  log.append("save", 5);
  EXPECT_THAT(names(), ElementsAre("start", "save"));
  const auto row = nlohmann::json::parse(split(read_file(folder_ / "events.jsonl"), '\n')[0]);
  EXPECT_EQ(row["step"], 0);
  EXPECT_EQ(row["ranks"], 2);
  EXPECT_GT(row["unix_time"], 1e9);
}

TEST_F(Events, OfAnEarlierStartStayOnAResumeAndGoOnAFreshStart) {
  std::ofstream(folder_ / "events.jsonl") << "{\"step\":9,\"event\":\"save\"}\n{\"step\":";  // torn by a crash
  EventLog resumed(folder_, true);
  resumed.append("resume", 4);
  ::testing::internal::CaptureStdout();
  resumed.begin(/*is_fresh=*/false);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("events.jsonl:2 is not the row of an event"));
  EXPECT_THAT(names(), ElementsAre("save", "resume"));
  EventLog fresh(folder_, true);
  fresh.append("start", 0);
  fresh.begin(/*is_fresh=*/true);
  EXPECT_THAT(names(), ElementsAre("start"));
}

TEST_F(Events, OfARunThatItsLauncherRestartedStayOnAFreshStart) {
  const std::string earlier = "{\"step\":9,\"unix_time\":90,\"event\":\"end\"}\n";
  const std::string first = "{\"step\":0,\"unix_time\":101,\"event\":\"start\"}\n";
  const std::string restart = "{\"step\":3,\"unix_time\":120,\"event\":\"restart\",\"first_start_unix_time\":100}\n";
  const auto begin_anew = [&](const std::string& content) {
    std::ofstream(folder_ / "events.jsonl") << content;
    EventLog log(folder_, true);
    log.append("start", 0);
    log.begin(/*is_fresh=*/true);
    return names();
  };
  EXPECT_THAT(begin_anew(earlier + first + restart), ElementsAre("start", "restart", "start"));
  EXPECT_THAT(begin_anew(earlier + restart), ElementsAre("restart", "start")) << "the first start made no step";
  const std::string gave_up = "{\"step\":3,\"unix_time\":130,\"event\":\"gave_up\"}\n";
  EXPECT_THAT(begin_anew(first + restart + gave_up), ElementsAre("start"));
}

TEST_F(Events, OnlyOneRankWritesThem) {
  EventLog log(folder_, false);
  log.append("start", 0);
  log.begin(true);
  EXPECT_FALSE(is_there());
}

}  // namespace
}  // namespace titan::metrics
