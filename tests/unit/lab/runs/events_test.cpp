#include "lab/runs/events.h"

#include <gmock/gmock.h>

#include "run_files.h"

namespace titan::runs {
namespace {

TEST(Events, AreReadInOrderWithTheirDetails) {
  const TemporaryFolder folder;
  EXPECT_TRUE(read_events(folder.path()).empty());
  folder.write("events.jsonl",
               "{\"step\":0,\"unix_time\":5.5,\"event\":\"start\",\"ranks\":2}\nno event\n{\"step\":3}\n"
               "{\"step\":4,\"unix_time\":6,\"event\":\"stop\",\"signal\":\"SIGTERM\"}\n{\"step\":");
  const auto events = read_events(folder.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "start");
  EXPECT_EQ(events[0].unix_time, 5.5);
  EXPECT_EQ(events[0].details, "ranks 2");
  EXPECT_EQ(events[1].step, 4);
  EXPECT_EQ(events[1].details, "signal SIGTERM");
}

TEST(Events, OfStepsThatRanAgainAreMarked) {
  const TemporaryFolder folder;
  std::string text;
  for (const char* row : {"0,\"event\":\"start\"", "10,\"event\":\"save\"", "14,\"event\":\"spike\"",
                          "10,\"event\":\"resume\"", "12,\"event\":\"save\"", "20,\"event\":\"end\""})
    text += std::string("{\"step\":") + row + "}\n";
  folder.write("events.jsonl", text);
  std::vector<bool> undone;
  for (const auto& event : read_events(folder.path())) undone.push_back(event.is_undone);
  EXPECT_THAT(undone, ::testing::ElementsAre(false, false, true, false, false, false));
}

}  // namespace
}  // namespace titan::runs
