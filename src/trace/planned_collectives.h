// The collectives of a step that a dry run takes: its groups are fake, and only report what they would send.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan {

struct PlannedCollective {
  std::string kind;        // "all_gather"
  std::string group;       // of ranks: "fsdp"
  std::string label;       // current_label() of the operation that started it: "layers.3"; empty if it has none
  std::int64_t bytes = 0;  // of the larger of input and output, on each rank
};

// While alive, collects the collectives that fake groups of this process start, from any thread. One at a time.
class PlannedCollectives {
 public:
  PlannedCollectives();
  ~PlannedCollectives();
  PlannedCollectives(const PlannedCollectives&) = delete;
  PlannedCollectives& operator=(const PlannedCollectives&) = delete;

  // Returns those since the construction or the last call, in the order in which they were started.
  std::vector<PlannedCollective> take();
};

// Reports a collective of a fake group; does nothing if nothing collects them.
void plan_collective(const char* kind, const std::string& group, std::int64_t bytes);

}  // namespace titan
