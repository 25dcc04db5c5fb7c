#include "checkpoint/dcp/collective_save.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "base/fs.h"
#include "checkpoint/choose.h"
#include "checkpoint/known_steps.h"
#include "tests/unit/checkpoint/sharded_items.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kSavers = 2;

std::vector<Item> two_items(int rank) {
  return {shard("w", at::arange(8, at::kFloat).reshape({4, 2}), rank, kSavers), value("step", 3)};
}

// Each rank writes one file that holds its number of items. The step `failing` throws; write() throws on rank 1 only.
SaveSteps counting_steps(int rank, const std::string& failing) {
  const auto fail_at = [failing](const std::string& step) {
    if (step == failing) throw CheckpointError(step + " went wrong");
  };
  SaveSteps steps;
  steps.plan = [=] { fail_at("plan"); };
  steps.prepare = [=](const fs::path& folder) {
    EXPECT_TRUE(fs::is_empty(folder));
    fail_at("prepare");
    std::ofstream(folder / "prepared") << "yes";
  };
  steps.write = [=](const fs::path& folder, const std::vector<std::size_t>& chosen) {
    const std::string count = std::to_string(chosen.size());
    std::ofstream(folder / ("part_" + std::to_string(rank))) << count;
    if (rank == 1) fail_at("write");
    return count;
  };
  steps.commit = [=](const fs::path& folder, const std::vector<std::string>& written, SavePlan& plan) {
    EXPECT_EQ(plan.items.size(), written.size());
    fail_at("commit");
    std::ofstream(folder / "index") << written.at(0) + " " + written.at(1);
    return std::uint64_t{17};
  };
  return steps;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST(CollectiveSave, PutsWhatAllRanksWroteInPlace) {
  const TemporaryFolder root;
  const auto errors = run_ranks(kSavers, [&](Ranks& ranks) {
    const auto bytes =
        collective_save(root / "out", "saving", two_items(ranks.rank()), ranks, counting_steps(ranks.rank(), ""));
    EXPECT_EQ(bytes, 17u);
  });
  EXPECT_THAT(errors, ElementsAre("", ""));
  EXPECT_EQ(names_in(root.path()), (std::set<std::string>{"out"}));
  EXPECT_EQ(names_in(root / "out"), (std::set<std::string>{"prepared", "part_0", "part_1", "index"}));
  // Two shards, and one value that only one rank writes.
  const std::string index = read_file(root / "out/index");
  EXPECT_TRUE(index == "2 1" || index == "1 2") << index;
}

TEST(CollectiveSave, AFailureOfAnyStepLeavesTheOldFolder) {
  for (const std::string failing : {"plan", "prepare", "write", "commit"}) {
    const TemporaryFolder root;
    fs::create_directory(root / "out");
    std::ofstream(root / "out/old") << "kept";
    const auto errors = run_ranks(kSavers, [&](Ranks& ranks) {
      collective_save(root / "out", "saving", two_items(ranks.rank()), ranks, counting_steps(ranks.rank(), failing));
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr(failing + " went wrong"));
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_EQ(names_in(root / "out"), (std::set<std::string>{"old"})) << failing;
    if (failing == "write" || failing == "commit") {
      EXPECT_FALSE(fs::exists(root / "out.tmp")) << failing;
    }
  }
}

// A rank that gets the error may end the run, including rank 0.
TEST(CollectiveSave, NoRankHasTheErrorBeforeTheSpaceIsFree) {
  const TemporaryFolder root;
  auto steps = [](int rank) {
    auto made = counting_steps(rank, "commit");
    made.prepare = [](const fs::path& folder) {
      for (int i = 0; i < 2000; ++i) std::ofstream(folder / std::to_string(i)) << "takes a while to remove";
    };
    return made;
  };
  const auto errors = run_ranks(kSavers, [&](Ranks& ranks) {
    try {
      collective_save(root / "out", "saving", two_items(ranks.rank()), ranks, steps(ranks.rank()));
    } catch (const CheckpointError&) {
      EXPECT_FALSE(fs::exists(root / "out.tmp")) << "rank " << ranks.rank();
      throw;
    }
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("commit went wrong"));
}

// Another run may have the name of the temporary folder by now, if somebody has removed the run's folder.
TEST(CollectiveSave, AFolderThatWasReplacedMeanwhileIsLeftAlone) {
  for (const std::string when : {"write", "commit"}) {
    const TemporaryFolder root;
    const auto replace = [&](const std::string& step) {
      if (step != when) return;
      fs::remove_all(root / "out.tmp");
      fs::create_directory(root / "out.tmp");
      std::ofstream(root / "out.tmp/theirs") << "kept";
    };
    const auto errors = run_ranks(kSavers, [&](Ranks& ranks) {
      const int rank = ranks.rank();
      auto steps = counting_steps(rank, "");
      steps.write = [&, write = steps.write](const fs::path& folder, const std::vector<std::size_t>& chosen) {
        const std::string count = rank == 0 ? write(folder, chosen) : "1";
        if (rank == 0) replace("write");
        return count;
      };
      steps.commit = [&, commit = steps.commit](const fs::path& folder, const std::vector<std::string>& written,
                                                SavePlan& plan) {
        const auto bytes = commit(folder, written, plan);
        replace("commit");
        return bytes;
      };
      collective_save(root / "out", "saving", two_items(rank), ranks, steps);
    });
    for (const std::string& error : errors)
      EXPECT_THAT(error, HasSubstr("out.tmp is another one now: it was removed, moved or replaced"));
    EXPECT_EQ(names_in(root.path()), (std::set<std::string>{"out.tmp"})) << when;
    EXPECT_EQ(names_in(root / "out.tmp"), (std::set<std::string>{"theirs"})) << when;
  }
}

TEST(KnownSteps, MissesWhatSomethingElseRemoved) {
  const TemporaryFolder base;
  const auto make = [&](const std::string& name) {
    fs::create_directory(base / name);
    std::ofstream(base / name / ".metadata") << "";
  };
  KnownSteps known;
  known.learn(base / "not there");
  EXPECT_EQ(known.take_missing(base / "not there"), std::vector<int>());
  for (const char* name : {"step-2", "step-4", "step-10"}) make(name);
  fs::create_directory(base / "step-6");  // incomplete
  known.learn(base.path());
  EXPECT_EQ(known.take_missing(base.path()), std::vector<int>());
  fs::remove_all(base / "step-4");
  fs::remove(base / "step-6");
  EXPECT_EQ(known.take_missing(base.path()), std::vector<int>{4});
  EXPECT_EQ(known.take_missing(base.path()), std::vector<int>());
  EXPECT_EQ(known.steps(), (std::vector<int>{2, 10}));
  fs::remove_all(base.path());
  EXPECT_EQ(known.take_missing(base.path()), (std::vector<int>{2, 10}));
  fs::create_directory(base.path());
}

// A name that is too long stands for a folder, or a file, that the system does not let this process look at.
TEST(KnownSteps, DoesNotMissWhatCannotBeLookedAt) {
  const TemporaryFolder base;
  const std::string too_long(300, 'x');
  KnownSteps known;
  EXPECT_NO_THROW(known.learn(base / too_long));
  EXPECT_EQ(known.steps(), std::vector<int>());
  fs::create_directory(base / "step-2");
  std::ofstream(base / "step-2/.metadata") << "";
  known.learn(base.path());
  fs::remove(base / "step-2/.metadata");
  fs::create_symlink(too_long, base / "step-2/.metadata");
  EXPECT_EQ(known.take_missing(base.path()), std::vector<int>());
  EXPECT_EQ(known.steps(), std::vector<int>{2});
}

TEST(LoadChoice, ReachesTheOtherRanksAsItIs) {
  const LoadChoice choice{.folder = "out/\xc3\xbc \"b\"/step-7",
                          .step = 7,
                          .in_hf = true,
                          .is_file = true,
                          .is_finished = true,
                          .passed_over = {{8, "damaged"}, {12, "incomplete (no .metadata)"}}};
  EXPECT_EQ(decode_choice(encode_choice(choice)), choice);
  const LoadChoice model{.folder = "x", .model_only = true};
  EXPECT_EQ(decode_choice(encode_choice(model)), model);
  EXPECT_EQ(decode_choice(encode_choice({})), LoadChoice{});
}

}  // namespace
}  // namespace titan::checkpoint
