// Tests every kind of hang, as the ranks' answers show it, and which rank is named.
#include "distributed/flight/find_culprit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace titan::dist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using States = std::vector<std::optional<RankState>>;

CollectiveFact collective(std::uint64_t number, CollectiveState state, const std::string& kind = "all_reduce",
                          std::int64_t numel = 8, const std::string& label = "", double age = 100) {
  return {number, kind, numel, numel, "float32", label, state, age, "data"};
}

// A group with `started` collectives; the last one has the state `last`, the others are finished.
GroupFact group(const std::string& name, const std::vector<int>& ranks, std::uint64_t started, CollectiveState last) {
  GroupFact fact{name, ranks, false, started, {}};
  for (std::uint64_t n = 1; n <= started; ++n)
    fact.recent.push_back(collective(n, n == started ? last : CollectiveState::kFinished));
  return fact;
}

RankState rank(int number, const std::string& phase, double seconds, std::vector<GroupFact> groups) {
  return {number, 12, phase, seconds, std::move(groups)};
}

constexpr auto kFailed = CollectiveState::kFailed;
constexpr auto kWaiting = CollectiveState::kWaiting;
constexpr auto kStarted = CollectiveState::kStarted;
constexpr auto kQueued = CollectiveState::kQueued;
constexpr auto kFinished = CollectiveState::kFinished;
const std::vector<int> kAll = {0, 1, 2, 3};

// Three of four ranks wait in number 3 of 'world', which rank 2 has not started.
States without_rank_2(const std::string& phase) {
  return {rank(0, "idle", 1, {group("world", kAll, 3, kFailed)}),
          rank(1, "data", 99, {group("world", kAll, 3, kWaiting)}),
          rank(2, phase, 131.4, {group("world", kAll, 2, kFinished)}),
          rank(3, "data", 99, {group("world", kAll, 3, kWaiting)})};
}

TEST(FindCulprit, NamesNobodyWhereNobodyWaits) {
  EXPECT_FALSE(find_culprit({rank(0, "data", 1, {group("world", {0, 1}, 3, kFinished)}),
                             rank(1, "data", 1, {group("world", {0, 1}, 3, kStarted)})}));
  EXPECT_FALSE(find_culprit({}));
}

TEST(FindCulprit, NamesTheRankWhoseHostIsBehindWhereDevicesWait) {
  const auto found = find_culprit({rank(0, "log", 99, {group("world", {0, 1}, 7, kFinished)}),
                                   rank(1, "data", 131, {group("world", {0, 1}, 5, kFinished)})});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->reason,
            "has been in data for 131 s at step 12, with 5 collectives of 'world' started, where others have 7");
}

// All hosts have gone on to wait for their devices, which are still in `numbers` of 'world'; 0: in none.
States with_devices_in(const std::vector<std::uint64_t>& numbers) {
  States states;
  for (const auto number : numbers) {
    auto world = group("world", {0, 1, 2}, 7, kFinished);
    if (number > 0)
      world.queued.push_back({number, "reduce_scatter", 6, 2, "bfloat16", "layers.0", kQueued, 31, "step"});
    states.emplace_back(rank(static_cast<int>(states.size()), "device", 30, {world}));
  }
  return states;
}

TEST(FindCulprit, NamesTheCollectiveThatTheDevicesDoNotFinish) {
  const auto found = find_culprit(with_devices_in({5, 5, 5}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, -1);
  EXPECT_EQ(found->reason,
            "all its ranks have started reduce_scatter of 6 -> 2 elements of bfloat16 for layers.0, no. 5 of 'world', "
            "and their devices do not finish it: look at the network between them, or at the devices");
  EXPECT_THAT(summarize(with_devices_in({5, 5, 5})),
              ElementsAre("ranks 0-2: at step 12, in device for 30 s; its device has not finished reduce_scatter of 6 "
                          "-> 2 elements of bfloat16 for layers.0, no. 5 of 'world', since 31 s"));
}

TEST(FindCulprit, SaysWhichDeviceIsBehindAndBlamesNone) {
  for (const std::uint64_t others : {6, 0}) {
    const auto found = find_culprit(with_devices_in({others, 5, others}));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rank, -1);
    EXPECT_EQ(found->reason,
              "the device of rank 1 had not finished reduce_scatter of 6 -> 2 elements of bfloat16 for layers.0, no. 5 "
              "of 'world', when those of ranks 0, 2 had");
  }
  EXPECT_THAT(find_culprit(with_devices_in({5, 0, 5}))->reason, HasSubstr("the devices of ranks 0, 2 had not"));
}

TEST(FindCulprit, NamesTheRankThatIsBusyWithAnythingElse) {
  for (const std::string phase : {"data", "checkpoint", "validation", "step", "load"}) {
    const auto found = find_culprit(without_rank_2(phase));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rank, 2);
    EXPECT_EQ(found->reason,
              "has been in " + phase +
                  " for 131 s at step 12, while ranks 0, 1, 3 wait for it in all_reduce of 8 elements of "
                  "float32, no. 3 of 'world'");
  }
}

TEST(FindCulprit, SaysWhichWorkOfAPipelineARankIsIn) {
  auto states = without_rank_2("step");
  states[2]->work = "forward of stage 1, microbatch 2";
  states[3]->work = "backward of stage 0, microbatch 7";
  states[2] = rank_state_from_json(to_json(*states[2]));
  EXPECT_THAT(find_culprit(states)->reason,
              HasSubstr("has been in step for 131 s at step 12 (forward of stage 1, microbatch 2), while"));
  const auto lines = summarize(states);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[0], HasSubstr("ranks 0, 1: at step 12, in data; waits in"));
  EXPECT_THAT(lines[1], HasSubstr("rank 2: at step 12 (forward of stage 1, microbatch 2), in step for"));
  EXPECT_THAT(lines[2], HasSubstr("rank 3: at step 12 (backward of stage 0, microbatch 7), in data; waits in"));
}

TEST(FindCulprit, SaysWhatACollectiveIsFor) {
  auto states = without_rank_2("step");
  for (const int r : {0, 1, 3}) {
    auto& waited = states[r]->groups[0].recent[2];
    waited = {3, "all_gather", 4, 16, "bfloat16", "layers.3", waited.state, 100, "step"};
  }
  EXPECT_THAT(find_culprit(states)->reason,
              HasSubstr("in all_gather of 4 -> 16 elements of bfloat16 for layers.3, no. 3 of 'world'"));
}

TEST(FindCulprit, NamesTheRankThatDoesNotAnswer) {
  auto states = without_rank_2("data");
  states[2].reset();
  const auto found = find_culprit(states);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_THAT(found->reason, HasSubstr("does not answer, though its process runs"));
}

TEST(FindCulprit, NamesOfSeveralTheOneThatIsBusyForTheLongest) {
  const GroupFact behind = group("world", kAll, 2, kFinished);
  const auto found =
      find_culprit({rank(0, "idle", 1, {group("world", kAll, 3, kFailed)}), rank(1, "data", 30, {behind}),
                    rank(2, "checkpoint", 40, {behind}), rank(3, "data", 20, {behind})});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_THAT(found->reason, HasSubstr("has been in checkpoint for 40 s at step 12, while rank 0 waits for it"));
  EXPECT_THAT(found->reason, HasSubstr("; nor have ranks 1, 3 come to where others wait"));
}

// Rank 0 waits for 1 over 'rows', 1 for 3 over 'columns', 3 reads its data. Rank 2 is not involved.
TEST(FindCulprit, DoesNotBlameAVictim) {
  const auto found =
      find_culprit({rank(0, "step", 1, {group("rows", {0, 1}, 5, kFailed)}),
                    rank(1, "step", 90, {group("rows", {0, 1}, 4, kFinished), group("columns", {1, 3}, 7, kWaiting)}),
                    rank(2, "step", 95, {group("rows", {2, 3}, 5, kStarted)}),
                    rank(3, "data", 80, {group("rows", {2, 3}, 5, kStarted), group("columns", {1, 3}, 6, kFinished)})});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_THAT(found->reason, HasSubstr("has been in data for 80 s"));
  EXPECT_THAT(found->reason, HasSubstr("while rank 1 waits for it in"));
}

TEST(FindCulprit, SeesRanksThatWaitForEachOther) {
  const auto found =
      find_culprit({rank(0, "step", 1, {group("a", {0, 1}, 5, kFailed), group("b", {0, 1}, 2, kFinished)}),
                    rank(1, "step", 9, {group("a", {0, 1}, 4, kFinished), group("b", {0, 1}, 3, kWaiting)})});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->reason,
              HasSubstr("waits in all_reduce of 8 elements of float32, no. 5 of 'a', while rank 1 waits"));
  EXPECT_THAT(found->reason, HasSubstr("no. 3 of 'b'"));
  EXPECT_THAT(found->reason, HasSubstr("in different orders"));
}

// A save runs on its own thread: rank 1's waiting save says nothing about the thread that others wait for.
TEST(FindCulprit, TellsABackgroundThreadFromTheOneThatTrains) {
  GroupFact saves = group("checkpoint", {0, 1}, 2, kWaiting);
  saves.runs_beside = true;
  auto states = States{rank(0, "step", 1, {group("world", {0, 1}, 5, kFailed)}),
                       rank(1, "data", 90, {group("world", {0, 1}, 4, kFinished), saves})};
  EXPECT_THAT(find_culprit(states)->reason, HasSubstr("has been in data for 90 s"));
  EXPECT_EQ(find_culprit(states)->rank, 1);

  // The training thread may wait for the save, though: then rank 0's save is the one that hangs.
  states[1]->phase = "checkpoint";
  GroupFact behind = group("checkpoint", {0, 1}, 1, kFinished);
  behind.runs_beside = true;
  states[0]->groups.push_back(behind);
  const auto found = find_culprit(states);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 0);
  EXPECT_THAT(found->reason, HasSubstr("has not come to a collective in the background, while rank 1 waits for it in"));
}

TEST(FindCulprit, SeesAnotherKind) {
  auto states = without_rank_2("step");
  states[2] = rank(2, "step", 1, {group("world", kAll, 3, kWaiting)});
  states[2]->groups[0].recent[2].kind = "all_gather";
  const auto found = find_culprit(states);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(
      found->reason,
      "disagrees on no. 3 of 'world': all_gather of 8 elements of float32, where ranks 0, 1, 3 have all_reduce of 8 "
      "elements of float32");
}

TEST(FindCulprit, SeesAnotherSizeDtypeAndPurpose) {
  for (const std::string what : {"input", "output", "dtype", "label"}) {
    auto states = without_rank_2("step");
    states[2] = rank(2, "step", 1, {group("world", kAll, 3, kWaiting)});
    auto& odd = states[2]->groups[0].recent[2];
    if (what == "input") odd.input_numel = 9;
    if (what == "output") odd.output_numel = 9;
    if (what == "dtype") odd.dtype = "bfloat16";
    if (what == "label") odd.label = "layers.1";
    const auto found = find_culprit(states);
    ASSERT_TRUE(found) << what;
    EXPECT_EQ(found->rank, 2);
    EXPECT_THAT(found->reason, HasSubstr("disagrees on no. 3 of 'world'")) << what;
  }
}

// A group whose collectives, from number 1 on, have these labels; the last one waits.
GroupFact labelled(const std::vector<std::string>& labels) {
  GroupFact fact{"fsdp", kAll, false, labels.size(), {}};
  for (std::size_t i = 0; i < labels.size(); ++i)
    fact.recent.push_back(collective(i + 1, i + 1 == labels.size() ? kWaiting : kFinished, "all_gather", 8, labels[i]));
  return fact;
}

TEST(FindCulprit, SeesThatACollectiveWasLeftOut) {
  const auto usual = labelled({"a", "b", "c"});
  const auto found = find_culprit({rank(0, "step", 1, {usual}), rank(1, "step", 1, {labelled({"a", "c", "d"})}),
                                   rank(2, "step", 1, {usual}), rank(3, "step", 1, {usual})});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_THAT(found->reason, HasSubstr("disagrees on no. 2 of 'fsdp'"));
  EXPECT_THAT(found->reason, HasSubstr("; it has 1 collective left out"));
}

TEST(FindCulprit, SeesThatThereIsACollectiveTooMany) {
  const auto usual = labelled({"a", "b", "c", "d"});
  const auto found = find_culprit({rank(0, "step", 1, {usual}), rank(1, "step", 1, {usual}),
                                   rank(2, "step", 1, {labelled({"a", "x", "y", "b"})}), rank(3, "step", 1, {usual})});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_THAT(found->reason, HasSubstr("; it has 2 collectives too many"));
}

TEST(FindCulprit, NamesWhoCameLate) {
  auto states = without_rank_2("step");
  states[2] = rank(2, "step", 1, {group("world", kAll, 3, kWaiting)});
  states[2]->groups[0].recent[2].age = 2;
  const auto found = find_culprit(states);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_THAT(found->reason,
              HasSubstr("came to all_reduce of 8 elements of float32, no. 3 of 'world', 98 s after rank"));
}

TEST(FindCulprit, NamesNobodyWhereAllAreThere) {
  auto states = without_rank_2("step");
  states[2] = rank(2, "step", 1, {group("world", kAll, 3, kWaiting)});
  const auto found = find_culprit(states);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, -1);
  EXPECT_THAT(found->reason, HasSubstr("all its ranks have started all_reduce"));
}

// A group of ranks 0 to 3 with these messages; the last one has the state `last`.
GroupFact messages(const std::vector<std::pair<std::string, int>>& all, CollectiveState last) {
  GroupFact fact{"pp", kAll, false, 0, {}};
  fact.sent.resize(4);
  fact.received.resize(4);
  for (const auto& [kind, peer] : all) {
    auto& count = (kind == "send" ? fact.sent : fact.received)[static_cast<std::size_t>(peer)];
    fact.transfers.push_back({++count, kind, 8, 0, "float32", "", kFinished, 100, "step", peer});
  }
  if (!all.empty()) fact.transfers.back().state = last;
  return fact;
}

// Rank 3 waits for rank 2, and that one for rank 1, which reads its data. Rank 0 sends ahead.
States with_a_stage_that_hangs() {
  return {rank(0, "step", 50, {messages({{"send", 1}, {"send", 1}, {"send", 1}}, kStarted)}),
          rank(1, "data", 70, {messages({{"receive", 0}, {"send", 2}}, kFinished)}),
          rank(2, "step", 60, {messages({{"receive", 1}, {"send", 3}, {"receive", 1}}, kWaiting)}),
          rank(3, "step", 80, {messages({{"receive", 2}, {"receive", 2}}, kFailed)})};
}

TEST(FindCulprit, NamesTheStageForWhoseMessageOthersWait) {
  const auto found = find_culprit(with_a_stage_that_hangs());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(
      found->reason,
      "has been in data for 70 s at step 12, while rank 2 waits for it in a receive of 8 elements of float32 from "
      "rank 1, message no. 2 of 'pp'");
}

TEST(FindCulprit, NamesTheStageThatDoesNotReceive) {
  const auto found = find_culprit({rank(0, "step", 50, {messages({{"send", 1}}, kWaiting)}),
                                   rank(1, "data", 70, {messages({}, kFinished)}), std::nullopt, std::nullopt});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_THAT(found->reason,
              HasSubstr("while rank 0 waits for it in a send of 8 elements of float32 to rank 1, message "
                        "no. 1 of 'pp'"));
}

TEST(FindCulprit, SeesMessagesThatWaitForEachOther) {
  const auto found = find_culprit({rank(0, "step", 50, {messages({{"send", 1}}, kWaiting)}),
                                   rank(1, "step", 70, {messages({{"send", 0}}, kFailed)})});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 0);
  EXPECT_EQ(found->reason,
            "waits in a send of 8 elements of float32 to rank 1, message no. 1 of 'pp', while rank 1 waits for it in a "
            "send of 8 elements of float32 to rank 0, message no. 1 of 'pp': each waits before it has started what the "
            "other one needs");
}

TEST(FindCulprit, SeesAMessageOfAnotherSize) {
  auto states = with_a_stage_that_hangs();
  states[2]->groups[0].transfers[0].input_numel = 4;
  const auto found = find_culprit(states);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->reason,
            "receives 4 elements of float32 as message no. 1 of 'pp' from rank 1, where rank 1 sends 8 elements of "
            "float32");
}

TEST(FindCulprit, NamesTheSenderOrReceiverThatCameLate) {
  for (const int late : {0, 1}) {
    States states = {rank(0, "step", 1, {messages({{"send", 1}}, late == 0 ? kStarted : kFailed)}),
                     rank(1, "step", 1, {messages({{"receive", 0}}, late == 0 ? kFailed : kStarted)})};
    states[static_cast<std::size_t>(late)]->groups[0].transfers[0].age = 2;
    const auto found = find_culprit(states);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rank, late);
    EXPECT_THAT(found->reason, HasSubstr("message no. 1 of 'pp', 98 s after rank"));
    states[static_cast<std::size_t>(late)]->groups[0].transfers[0].age = 100;
    EXPECT_EQ(find_culprit(states)->rank, -1);
  }
}

// Only devices wait: the host of rank 1 has not sent what rank 2 receives, and has nothing to wait for itself.
TEST(FindCulprit, NamesTheHostThatOwesAMessage) {
  auto states = with_a_stage_that_hangs();
  states[0] = rank(0, "step", 50, {messages({{"send", 1}}, kFinished)});
  for (auto& state : states) state->groups[0].transfers.back().state = kFinished;
  const auto found = find_culprit(states);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(
      found->reason,
      "has been in data for 70 s at step 12, with 1 send to rank 2 over 'pp' started, where that rank has started "
      "the other ends of 2");
}

TEST(Summary, HasALineForEachKindOfRank) {
  auto states = without_rank_2("data");
  states[3].reset();
  states[0]->groups[0].recent[2].age = 101;
  // Rank 0 has given up and is in no phase, so its phase is the one recorded with the collective.
  EXPECT_THAT(
      summarize(states),
      ElementsAre("rank 0: at step 12, in data; waits in all_reduce of 8 elements of float32, no. 3 of 'world', "
                  "since 101 s",
                  "rank 1: at step 12, in data; waits in all_reduce of 8 elements of float32, no. 3 of 'world', "
                  "since 100 s",
                  "rank 2: at step 12, in data for 131 s, in no collective", "rank 3: does not answer"));
  states[0]->groups[0].recent[2].age = 100;
  EXPECT_THAT(summarize(states)[0], HasSubstr("ranks 0, 1: at step 12, in data; waits"));
}

TEST(RankState, IsTheSameAfterItsText) {
  RankState state = rank(3, "data", 1.5, {group("world", kAll, 2, kWaiting)});
  state.groups[0].recent[0].label = "layers.0";
  state.groups[0].runs_beside = true;
  state.groups[0].queued.push_back(collective(2, kQueued));
  state.groups.push_back(messages({{"send", 1}, {"receive", 2}}, kWaiting));
  const RankState again = rank_state_from_json(to_json(state));
  EXPECT_EQ(to_json(again), to_json(state));
  EXPECT_TRUE(again.groups.at(0).recent.at(1).matches(state.groups[0].recent[1]));
  EXPECT_EQ(again.groups[0].recent[1].state, kWaiting);
  EXPECT_EQ(again.groups.at(1).transfers.at(1).peer, 2);
  EXPECT_EQ(again.groups[1].count("send", 1), 1u);
  EXPECT_EQ(again.groups[1].count("receive", 1), 0u);
}

}  // namespace
}  // namespace titan::dist
