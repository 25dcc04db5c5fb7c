// The position of the elastic order in a checkpoint. TorchTitan has no such entries.
#pragma once

#include <cstdint>
#include <vector>

#include "contract/batch_source.h"

namespace titan::data {

// Position of one lane (see ElasticOrder).
struct LaneState {
  std::int64_t lane = 0;
  std::int64_t windows = 0;           // windows returned: one per step
  std::vector<std::int64_t> cursors;  // for each source: items begun, tokens used of the last one
};

// Positions of some lanes, and the values that determine their order.
struct ElasticState {
  std::int64_t seed = 0;
  std::int64_t num_lanes = 0;           // over all ranks: sequences per global batch
  std::vector<std::int64_t> num_items;  // per source
  std::vector<LaneState> lanes;         // lanes of one rank, in order
};

// Returns dataloader.titan.order, identical on all ranks, and dataloader.titan.lane_<l> for every lane.
std::vector<StateEntry> to_entries(const ElasticState& state);

// Returns the lanes [first_lane, first_lane + count), whichever rank saved them; skips lanes that `saved` does not
// have. Throws CheckpointError if `saved` does not have the form that to_entries() returns.
ElasticState parse_elastic_state(const Values& saved, std::int64_t first_lane, std::int64_t count);

}  // namespace titan::data
