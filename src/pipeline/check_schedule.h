// Finds what is wrong with a schedule before it runs. No torch.
//
// Each fault is one sentence or two that name the rank, the place in its order (from 1) and the action.
#pragma once

#include <optional>
#include <string>

#include "pipeline/pipeline_schedule.h"

namespace titan::pipeline {

// Returns the first fault of the computation; nullopt if every microbatch goes through each stage once, forward and
// then backward (B, or I and then W), on the stage's rank, and the ranks never wait for each other in a circle.
// Communication is ignored.
std::optional<std::string> find_wrong_computation(const PipelineSchedule& schedule);

// Says when a send is done.
enum class SendRule {
  kAtOnce,           // the message waits for its receiver elsewhere
  kWithItsReceiver,  // the receiver has come to the matching receive, as with large messages over NCCL
};

// Returns the first fault of the communication; nullopt if there is none:
// - each result that another rank needs is sent once, after it was made, and received once, before it is used;
// - the messages from one rank to another are received in the order in which they are sent, so that they need no tags;
// - a stage's parameters are gathered while it computes and freed at the end, and its gradients are reduced once, after
//   the last of them;
// - every rank comes to its end if each receive waits for its message, and each send as the rule says.
// The computation must have no fault.
std::optional<std::string> find_wrong_communication(const PipelineSchedule& schedule, SendRule rule);

struct ScheduleCheck {
  std::optional<std::string> fault;                // nullopt: the schedule runs, if sends are done at once
  std::optional<std::string> fault_if_sends_wait;  // nullopt: it also runs with SendRule::kWithItsReceiver
};

// Checks a schedule with communication (with_communication.h).
ScheduleCheck check_schedule(const PipelineSchedule& schedule);

}  // namespace titan::pipeline
