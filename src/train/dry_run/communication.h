// Describes what the ranks of a planned run exchange: the groups of parameters that communicate together, and the
// messages of a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/fsdp/group_facts.h"
#include "trace/planned_collectives.h"

namespace titan::train {

// The collectives of one kind among one group of ranks, in the forwards and backwards of a step, on each rank.
struct Messages {
  std::string kind;        // "all_gather"
  std::string group;       // of ranks: "fsdp"
  std::int64_t count = 0;  // per step
  std::int64_t bytes = 0;  // of all of them: of the larger of input and output
};

struct Communication {
  std::vector<fsdp::GroupFacts> groups;
  std::vector<Messages> messages;
};

// Adds up the collectives of `microbatches` for a step of `all_microbatches`.
std::vector<Messages> messages_of_step(const std::vector<PlannedCollective>& collectives, std::int64_t microbatches,
                                       std::int64_t all_microbatches);

// A row of the table: its words and its value.
struct CommunicationLine {
  std::string what;   // "layers.{0-31}"
  std::string value;  // "32 x 416.05 MiB"
};

// Returns a line for each group; neighbors whose names differ in one number, and that have equal sizes, share one.
std::vector<CommunicationLine> group_lines(const std::vector<fsdp::GroupFacts>& groups);

// Returns a line for each kind of message.
std::vector<CommunicationLine> message_lines(const std::vector<Messages>& messages);

}  // namespace titan::train
