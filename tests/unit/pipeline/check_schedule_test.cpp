#include "pipeline/check_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "pipeline/schedule_csv.h"
#include "pipeline/schedule_kinds.h"
#include "pipeline/with_communication.h"
#include "tests/support/message_of.h"

namespace titan::pipeline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

PipelineSchedule lowered(const char* name, const PipelineSize& size) {
  return with_communication(make_schedule(find_schedule_kind(name), size));
}

// Returns the place of an action in the order of the rank that has its stage.
std::vector<Step>::iterator find(PipelineSchedule& schedule, const Action& action) {
  auto& order = schedule.orders[schedule.rank_of_stage[action.stage]];
  const auto found = std::ranges::find(order, Step(action));
  EXPECT_NE(found, order.end()) << to_text(action);
  return found;
}

void remove(PipelineSchedule& schedule, const Action& action) {
  schedule.orders[schedule.rank_of_stage[action.stage]].erase(find(schedule, action));
}

std::string fault_without(const Action& action, const char* name = "ZBVZeroBubble") {
  PipelineSchedule schedule = lowered(name, {2, std::string(name) == "1F1B" ? 1 : 2, 4});
  remove(schedule, action);
  return check_schedule(schedule).fault.value_or("none");
}

TEST(CheckSchedule, FindsWhatIsMissing) {
  EXPECT_THAT(fault_without({0, Kind::kForward, 1}), HasSubstr("(0I1): 0F1 has to come before it"));
  EXPECT_THAT(fault_without({3, Kind::kInputGradient, 1}), HasSubstr("(3W1): 3I1 has to come before it"));
  EXPECT_THAT(fault_without({3, Kind::kWeightGradient, 2}),
              AllOf(HasSubstr("rank 0, after its "), HasSubstr("3W2 is missing, the other half of 3I2")));
  EXPECT_THAT(fault_without({1, Kind::kBackward, 3}, "1F1B"), HasSubstr("1B3 is missing, or 1I3 and 1W3"));
  EXPECT_THAT(fault_without({1, Kind::kReceiveForward, 2}),
              AllOf(HasSubstr("rank 1, action "), HasSubstr("(1F2): its input must be received before it (1RECV_F2)")));
  EXPECT_THAT(fault_without({1, Kind::kSendBackward, 2}), HasSubstr("rank 1, at its end: 1SEND_B2 is missing"));
  EXPECT_THAT(fault_without({3, Kind::kUnshard}),
              HasSubstr("(3F0): the parameters of stage 3 must be gathered before it"));
  EXPECT_THAT(fault_without({3, Kind::kReshard}), HasSubstr("3RESHARD is missing"));
  EXPECT_THAT(fault_without({2, Kind::kReduceGradients}), HasSubstr("2REDUCE_GRAD is missing"));
}

TEST(CheckSchedule, FindsAMessageThatIsNotSent) {
  PipelineSchedule schedule = lowered("1F1B", {2, 1, 4});
  remove(schedule, {0, Kind::kSendForward, 3});
  EXPECT_THAT(check_schedule(schedule).fault.value_or(""), HasSubstr("rank 0, at its end: 0SEND_F3 is missing"));
}

TEST(CheckSchedule, FindsWhatIsThereTwice) {
  const auto fault_with_two = [](const Action& action) {
    PipelineSchedule schedule = lowered("ZBVZeroBubble", {2, 2, 4});
    auto& order = schedule.orders[schedule.rank_of_stage[action.stage]];
    order.insert(find(schedule, action) + 1, Step(action));
    return check_schedule(schedule).fault.value_or("none");
  };
  EXPECT_THAT(fault_with_two({1, Kind::kForward, 1}),
              HasSubstr("rank 1, action 10 (1F1): this forward was done before"));
  EXPECT_THAT(fault_with_two({1, Kind::kInputGradient, 1}), HasSubstr("this backward was done or begun before"));
  EXPECT_THAT(fault_with_two({1, Kind::kWeightGradient, 1}), HasSubstr("were computed before"));
  EXPECT_THAT(fault_with_two({0, Kind::kSendForward, 1}), HasSubstr("(0SEND_F1): it is here twice"));
  EXPECT_THAT(fault_with_two({0, Kind::kUnshard}), HasSubstr("stage 0 is gathered already"));
  EXPECT_THAT(fault_with_two({0, Kind::kReshard}), HasSubstr("stage 0 is not gathered"));
  EXPECT_THAT(fault_with_two({0, Kind::kReduceGradients}), HasSubstr("must be reduced once"));
}

TEST(CheckSchedule, FindsMessagesInAnotherOrder) {
  PipelineSchedule schedule = lowered("GPipe", {2, 1, 4});
  std::iter_swap(find(schedule, {0, Kind::kSendForward, 1}), find(schedule, {0, Kind::kForward, 2}));
  std::iter_swap(find(schedule, {0, Kind::kSendForward, 1}), find(schedule, {0, Kind::kSendForward, 2}));
  EXPECT_EQ(
      check_schedule(schedule).fault.value_or("none"),
      "rank 1, action 4 (1RECV_F1): message 2 from rank 0 to rank 1 is 0SEND_F2, action 6 of rank 0; messages must "
      "be received in the order in which they are sent");
}

TEST(CheckSchedule, FindsASendBeforeItsComputation) {
  PipelineSchedule schedule = lowered("GPipe", {2, 1, 4});
  std::iter_swap(find(schedule, {0, Kind::kSendForward, 1}), find(schedule, {0, Kind::kForward, 1}));
  EXPECT_THAT(check_schedule(schedule).fault.value_or("none"),
              HasSubstr("rank 0, action 4 (0SEND_F1): what it sends is not computed before it"));
}

TEST(CheckSchedule, FindsStagesOfOtherRanks) {
  PipelineSchedule schedule = make_schedule(find_schedule_kind("1F1B"), {2, 1, 2});
  schedule.orders[0].front() = Action{1, Kind::kForward, 0};
  EXPECT_EQ(find_wrong_computation(schedule), "rank 0, action 1 (1F0): rank 1 has stage 1");
  schedule.orders[0].front() = Action{2, Kind::kForward, 0};
  EXPECT_EQ(find_wrong_computation(schedule), "rank 0, action 1 (2F0): there is no stage 2; the last is 1");
  schedule.orders[0].front() = Action{0, Kind::kForward, 2};
  EXPECT_EQ(find_wrong_computation(schedule), "rank 0, action 1 (0F2): there is no microbatch 2; the last is 1");
}

// Both ranks first compute what needs the other's result.
constexpr const char* kCircle = "0F0,2F1,2F0,0F1,2B0,0B0,2B1,0B1\n1F1,1F0,3F0,3F1,3B0,3B1,1B0,1B1\n";

TEST(CheckSchedule, FindsACircle) {
  const PipelineSchedule schedule = read_schedule_csv(kCircle, "circle.csv");
  const std::string expected =
      "no rank can go on: rank 0, action 2 (2F1) waits for 1F1; rank 1, action 1 (1F1) waits for 0F1";
  EXPECT_EQ(find_wrong_computation(schedule), expected);
  EXPECT_EQ(titan::test::message_of<DataError>([&] { with_communication(schedule); }), expected);
}

// The ranks send to each other before either receives: that is right only if a send does not wait.
TEST(CheckSchedule, SaysWhatNeedsSendsThatDoNotWait) {
  PipelineSchedule schedule = lowered("Interleaved1F1B", {2, 2, 4});
  EXPECT_EQ(check_schedule(schedule).fault_if_sends_wait, std::nullopt);
  // Moves a receive of rank 0 to behind its next send, and a receive of rank 1 to behind its next send.
  auto move_back = [&schedule](const Action& receive, const Action& behind) {
    remove(schedule, receive);
    schedule.orders[schedule.rank_of_stage[receive.stage]].insert(find(schedule, behind) + 1, Step(receive));
  };
  move_back({2, Kind::kReceiveForward, 2}, {2, Kind::kSendBackward, 1});
  move_back({1, Kind::kReceiveForward, 3}, {1, Kind::kSendForward, 2});
  const ScheduleCheck check = check_schedule(schedule);
  EXPECT_EQ(check.fault, std::nullopt);
  EXPECT_THAT(check.fault_if_sends_wait.value_or("none"),
              AllOf(HasSubstr("no rank can go on: rank 0, action "), HasSubstr("; rank 1, action ")));
}

// Two ranks that wait for each other's message.
TEST(CheckSchedule, FindsADeadlock) {
  PipelineSchedule schedule = lowered("1F1B", {2, 1, 2});
  // Rank 0 waits for the gradient of microbatch 0 before it sends microbatch 1, for which rank 1 waits first.
  remove(schedule, {0, Kind::kReceiveBackward, 0});
  schedule.orders[0].insert(find(schedule, {0, Kind::kSendForward, 1}), Step(Action{0, Kind::kReceiveBackward, 0}));
  remove(schedule, {1, Kind::kReceiveForward, 1});
  schedule.orders[1].insert(find(schedule, {1, Kind::kBackward, 0}), Step(Action{1, Kind::kReceiveForward, 1}));
  EXPECT_EQ(check_schedule(schedule).fault.value_or("none"),
            "no rank can go on: rank 0, action 5 (0RECV_B0) waits for 1SEND_B0 of rank 1; rank 1, action 4 (1RECV_F1) "
            "waits for 0SEND_F1 of rank 0");
}

// The last rank's two stages of a V are neighbors, and so have no message.
TEST(CheckSchedule, NeighborsOnARankSendNothing) {
  const PipelineSchedule schedule = lowered("ZBVZeroBubble", {2, 2, 4});
  EXPECT_EQ(num_messages(schedule), 4 * 2 * 2);  // two of three borders, both ways
  PipelineSchedule wrong = schedule;
  wrong.orders[1].insert(find(wrong, {1, Kind::kForward, 0}) + 1, Step(Action{1, Kind::kSendForward, 0}));
  EXPECT_THAT(check_schedule(wrong).fault.value_or("none"), HasSubstr("no other rank has the stage at the other end"));
}

}  // namespace
}  // namespace titan::pipeline
