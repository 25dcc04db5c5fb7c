#include "lab/sweep/plan/slots.h"

#include <gmock/gmock.h>

#include "support.h"

namespace titan::sweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Machine kMachine = {{0, 1, 2, 3, 8, 9}, {"4", "GPU-a", "6"}};

TEST(Slots, DoNotOverlap) {
  SweepSpec spec;
  spec.nproc = 2;
  EXPECT_THAT(make_slots(spec, kMachine), ElementsAre(Slot{{0, 1}, {}}, Slot{{2, 3}, {}}, Slot{{8, 9}, {}}));
  spec.max_parallel = 1;
  EXPECT_THAT(make_slots(spec, kMachine), ElementsAre(Slot{{0, 1}, {}}));
  spec.max_parallel = {};
  spec.cores = 4;
  EXPECT_THAT(make_slots(spec, kMachine), ElementsAre(Slot{{0, 1, 2, 3}, {}}));
}

TEST(Slots, GpusShareTheCores) {
  SweepSpec spec;
  spec.gpus = 1;
  EXPECT_THAT(make_slots(spec, kMachine),
              ElementsAre(Slot{{0, 1}, {"4"}}, Slot{{2, 3}, {"GPU-a"}}, Slot{{8, 9}, {"6"}}));
  spec.gpus = 2;
  EXPECT_THAT(make_slots(spec, kMachine), ElementsAre(Slot{{0, 1, 2, 3, 8, 9}, {"4", "GPU-a"}}));
}

TEST(Slots, MoreRanksThanCoresShareThem) {
  SweepSpec spec;
  spec.nproc = 16;
  EXPECT_THAT(make_slots(spec, kMachine), ElementsAre(Slot{kMachine.cores, {}}));
}

TEST(Slots, WhatDoesNotFitIsRefused) {
  SweepSpec spec;
  spec.max_parallel = 4;
  spec.cores = 2;
  EXPECT_THAT(error_of([&] { make_slots(spec, kMachine); }),
              HasSubstr("4 trials at once with 2 cores each need 8, and there are 6; lower sweep.max_parallel"));
  spec.cores = {};
  spec.max_parallel = {};
  spec.gpus = 4;
  EXPECT_THAT(error_of([&] { make_slots(spec, kMachine); }), HasSubstr("1 trial at once with 4 gpus each needs 4"));
  spec.gpus = 1;
  spec.max_parallel = 4;
  EXPECT_THAT(error_of([&] { make_slots(spec, kMachine); }), HasSubstr("4 trials at once with 1 gpu each need 4"));
}

TEST(Slots, ALauncherPlacesTrialsItself) {
  SweepSpec spec;
  spec.launcher = "srun";
  EXPECT_THAT(error_of([&] { make_slots(spec, kMachine); }), HasSubstr("say with sweep.max_parallel"));
  spec.max_parallel = 9;
  EXPECT_EQ(make_slots(spec, kMachine), std::vector<Slot>(9));
  spec.max_parallel = INT64_MAX;
  EXPECT_EQ(make_slots(spec, kMachine).size(), static_cast<std::size_t>(kMostTrials));
}

TEST(Launcher, SplitsAndFillsItsTemplate) {
  const LaunchValues values{2, 4, 1, "trial-000", "/out/a b"};
  EXPECT_THAT(
      fill_launcher("srun -n {ranks} --cpus-per-task='{cores}' -J \"{name} x\" \\{ {folder}", values,
                    {"p", "--config"}),
      ElementsAre("srun", "-n", "2", "--cpus-per-task=4", "-J", "trial-000 x", "{", "/out/a b", "p", "--config"));
  EXPECT_THAT(fill_launcher("a {command} '' b", values, {"p", "q"}), ElementsAre("a", "p", "q", "", "b"));
  EXPECT_THAT(error_of([&] { fill_launcher("srun {rank}", values, {}); }), HasSubstr("{rank}; known are {ranks}"));
  EXPECT_THAT(error_of([&] { fill_launcher("srun 'x", values, {}); }), HasSubstr("an open '"));
}

}  // namespace
}  // namespace titan::sweep
