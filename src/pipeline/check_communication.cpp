#include <algorithm>
#include <map>
#include <set>

#include "pipeline/check_schedule.h"
#include "pipeline/places.h"

namespace titan::pipeline {
namespace {

// A send or a receive in the order of its rank.
struct End {
  Action message;  // as its receiver names it
  std::size_t index;
};

using Channel = std::pair<int, int>;  // the sending and the receiving rank

// Returns the receive of a send, and a receive unchanged.
Action as_received(const Action& action) {
  if (action.kind == Kind::kSendForward) return {action.stage + 1, Kind::kReceiveForward, action.microbatch};
  if (action.kind == Kind::kSendBackward) return {action.stage - 1, Kind::kReceiveBackward, action.microbatch};
  return action;
}

// Returns the send of a message.
Action as_sent(const Action& message) {
  if (message.kind == Kind::kReceiveForward) return {message.stage - 1, Kind::kSendForward, message.microbatch};
  return {message.stage + 1, Kind::kSendBackward, message.microbatch};
}

Channel channel_of(const PipelineSchedule& schedule, const Action& message) {
  return {schedule.rank_of_stage[as_sent(message).stage], schedule.rank_of_stage[message.stage]};
}

// True if there is a message of that name in the schedule's pipeline.
bool is_possible(const PipelineSchedule& schedule, const Action& message) {
  const int from = as_sent(message).stage;
  const auto exists = [&schedule](int stage) { return stage >= 0 && stage < schedule.num_stages(); };
  return exists(from) && exists(message.stage) && is_message(schedule, from, message.stage) &&
         message.microbatch >= 0 && message.microbatch < schedule.num_microbatches;
}

// Checks one rank's order without the others: what its steps need from steps before them.
class RankCommunication {
 public:
  RankCommunication(const PipelineSchedule& schedule, int rank) : schedule_(schedule), rank_(rank) {}

  std::optional<std::string> find_fault() {
    const auto& order = schedule_.orders[rank_];
    for (std::size_t i = 0; i < order.size(); ++i)
      for (const Action& action : order[i].actions())
        if (const std::string fault = fault_of(action); !fault.empty())
          return place_text(schedule_, rank_, i) + ": " + fault;
    return fault_at_end();
  }

 private:
  std::string fault_of(const Action& action) {
    if (sends(action.kind) || receives(action.kind)) return fault_of_message(action);
    const bool is_gathered = gathered_.contains(action.stage);
    const std::string stage = "stage " + std::to_string(action.stage);
    if (action.kind == Kind::kUnshard) {
      gathered_.insert(action.stage);
      return is_gathered ? stage + " is gathered already" : "";
    }
    if (action.kind == Kind::kReshard) {
      gathered_.erase(action.stage);
      return is_gathered ? "" : stage + " is not gathered";
    }
    if (action.kind == Kind::kReduceGradients) {
      if (reduced_.insert(action.stage).second && weight_gradients_[action.stage] == schedule_.num_microbatches)
        return {};
      return "the gradients of " + stage + " must be reduced once, after the last of them";
    }
    return is_gathered ? fault_of_computation(action)
                       : "the parameters of " + stage + " must be gathered before it (" +
                             to_text(Action{action.stage, Kind::kUnshard}) + ")";
  }

  std::string fault_of_message(const Action& action) {
    const Action message = as_received(action);
    if (!is_possible(schedule_, message))
      return "no other rank has the stage at the other end, or no microbatch is that";
    if (sends(action.kind)) {
      const Kind made_by = action.kind == Kind::kSendForward ? Kind::kForward : Kind::kBackward;
      if (!made_.contains({action.stage, made_by, action.microbatch})) return "what it sends is not computed before it";
    }
    return messages_.insert(action).second ? "" : "it is here twice";
  }

  std::string fault_of_computation(const Action& action) {
    if (makes_weight_gradients(action.kind)) ++weight_gradients_[action.stage];
    if (action.kind == Kind::kWeightGradient) return {};
    const bool is_forward = action.kind == Kind::kForward;
    // The halves of a backward and a full one make the same message.
    made_.insert({action.stage, is_forward ? Kind::kForward : Kind::kBackward, action.microbatch});
    const int giver = giving_stage(schedule_, action);
    if (!is_message(schedule_, giver, action.stage)) return {};
    const Action input{action.stage, is_forward ? Kind::kReceiveForward : Kind::kReceiveBackward, action.microbatch};
    return messages_.contains(input) ? "" : "its input must be received before it (" + to_text(input) + ")";
  }

  std::optional<std::string> fault_at_end() {
    const std::string here = "rank " + std::to_string(rank_) + ", at its end: ";
    for (const Action& made : made_) {
      const bool is_forward = made.kind == Kind::kForward;
      if (!is_message(schedule_, made.stage, receiving_stage(schedule_, made))) continue;
      const Action send{made.stage, is_forward ? Kind::kSendForward : Kind::kSendBackward, made.microbatch};
      if (!messages_.contains(send)) return here + to_text(send) + " is missing";
    }
    if (!gathered_.empty()) return here + to_text(Action{*gathered_.begin(), Kind::kReshard}) + " is missing";
    for (const int stage : stages_of_rank(schedule_, rank_))
      if (!reduced_.contains(stage)) return here + to_text(Action{stage, Kind::kReduceGradients}) + " is missing";
    return std::nullopt;
  }

  const PipelineSchedule& schedule_;
  int rank_;
  std::set<int> gathered_, reduced_;     // stages
  std::map<int, int> weight_gradients_;  // microbatches of each stage
  std::set<Action> made_;                // kForward and kBackward, so far
  std::set<Action> messages_;            // sent and received, so far
};

using Ends = std::map<Channel, std::vector<End>>;

// Collects one kind of ends (sends() or receives()) of all channels, in order.
Ends ends_of(const PipelineSchedule& schedule, bool (*is_end)(Kind)) {
  Ends ends;
  for (const auto& order : schedule.orders)
    for (std::size_t i = 0; i < order.size(); ++i)
      if (is_end(order[i].first().kind)) {
        const Action message = as_received(order[i].first());
        ends[channel_of(schedule, message)].push_back({message, i});
      }
  return ends;
}

// Compares both ends of every channel.
std::optional<std::string> find_unmatched(const PipelineSchedule& schedule) {
  Ends sent = ends_of(schedule, sends), received = ends_of(schedule, receives);
  for (const auto& [channel, ends] : received) sent[channel];  // a channel may have one end only
  for (const auto& [channel, from] : sent) {
    const auto& to = received[channel];
    const auto [sender, receiver] = channel;
    for (std::size_t i = 0; i < std::max(from.size(), to.size()); ++i) {
      if (i < from.size() && i < to.size() && from[i].message == to[i].message) continue;
      const std::string number = "message " + std::to_string(i + 1) + " from rank " + std::to_string(sender) +
                                 " to rank " + std::to_string(receiver);
      if (i >= to.size()) return place_text(schedule, sender, from[i].index) + ": nobody receives it, " + number;
      if (i >= from.size()) return place_text(schedule, receiver, to[i].index) + ": nobody sends it, " + number;
      return place_text(schedule, receiver, to[i].index) + ": " + number + " is " + to_text(as_sent(from[i].message)) +
             ", action " + std::to_string(from[i].index + 1) + " of rank " + std::to_string(sender) +
             "; messages must be received in the order in which they are sent";
    }
  }
  return std::nullopt;
}

// Walks through the communication of all ranks.
class CommunicationWalk {
 public:
  CommunicationWalk(const PipelineSchedule& schedule, SendRule rule) : schedule_(schedule), rule_(rule) {}

  std::optional<std::string> find_fault() {
    const auto stands = walk(schedule_, [this](int rank, std::size_t i) { return try_step(rank, i); });
    std::string text = waiting_text(schedule_, stands, [this](int rank, std::size_t i) {
      const Action& action = schedule_.orders[rank][i].first();
      const Action other = sends(action.kind) ? as_received(action) : as_sent(action);
      return to_text(other) + " of rank " + std::to_string(schedule_.rank_of_stage[other.stage]);
    });
    return text.empty() ? std::nullopt : std::optional(std::move(text));
  }

 private:
  bool try_step(int rank, std::size_t index) {
    const Action& action = schedule_.orders[rank][index].first();
    if (!sends(action.kind) && !receives(action.kind)) return true;
    reached_.insert(action);
    if (sends(action.kind)) return rule_ == SendRule::kAtOnce || reached_.contains(as_received(action));
    return reached_.contains(as_sent(action));
  }

  const PipelineSchedule& schedule_;
  SendRule rule_;
  std::set<Action> reached_;  // sends and receives that their rank has come to
};

}  // namespace

std::optional<std::string> find_wrong_communication(const PipelineSchedule& schedule, SendRule rule) {
  for (int rank = 0; rank < schedule.num_ranks(); ++rank)
    if (auto fault = RankCommunication(schedule, rank).find_fault()) return fault;
  if (auto fault = find_unmatched(schedule)) return fault;
  return CommunicationWalk(schedule, rule).find_fault();
}

ScheduleCheck check_schedule(const PipelineSchedule& schedule) {
  if (auto fault = find_wrong_computation(schedule)) return {.fault = fault, .fault_if_sends_wait = fault};
  return {.fault = find_wrong_communication(schedule, SendRule::kAtOnce),
          .fault_if_sends_wait = find_wrong_communication(schedule, SendRule::kWithItsReceiver)};
}

}  // namespace titan::pipeline
