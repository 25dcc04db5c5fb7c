// The position of the elastic order in a checkpoint. TorchTitan does not know it.
#pragma once

#include <cstdint>
#include <vector>

#include "contract/batch_source.h"

namespace titan::data {

// Where one lane stands (see ElasticOrder).
struct LaneState {
  std::int64_t lane = 0;
  std::int64_t windows = 0;           // that it has given: one per step
  std::vector<std::int64_t> cursors;  // for each source: items begun, tokens used of the last one
};

// Some lanes, and what their order depends on.
struct ElasticState {
  std::int64_t seed = 0;
  std::int64_t num_lanes = 0;           // of all ranks: sequences of a global batch
  std::vector<std::int64_t> num_items;  // of each source
  std::vector<LaneState> lanes;         // of one rank, in order
};

// dataloader.titan.order, which all ranks have alike, and dataloader.titan.lane_<l> for every lane.
std::vector<StateEntry> to_entries(const ElasticState& state);

// The lanes [first_lane, first_lane + count), whoever saved them; one that `saved` lacks is left out. Throws
// CheckpointError when `saved` is not what to_entries() gives.
ElasticState parse_elastic_state(const Values& saved, std::int64_t first_lane, std::int64_t count);

}  // namespace titan::data
