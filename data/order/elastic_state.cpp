#include "data/order/elastic_state.h"

#include <string>

#include "base/error.h"
#include "data/order/saved_order.h"

namespace titan::data {
namespace {

std::string lane_key(std::int64_t lane) { return "dataloader.titan.lane_" + std::to_string(lane); }

}  // namespace

std::vector<StateEntry> to_entries(const ElasticState& state) {
  std::vector<StateEntry> entries;
  entries.push_back(
      {.key = kElasticKey,
       .value = Value::dict(
           {{"seed", state.seed}, {"num_lanes", state.num_lanes}, {"num_items", Value::ints(state.num_items)}}),
       .optional = true});
  for (const LaneState& lane : state.lanes) {
    std::vector<std::int64_t> numbers = {lane.windows};
    numbers.insert(numbers.end(), lane.cursors.begin(), lane.cursors.end());
    entries.push_back({.key = lane_key(lane.lane), .value = Value::ints(numbers), .optional = true});
  }
  return entries;
}

ElasticState parse_elastic_state(const Values& saved, std::int64_t first_lane, std::int64_t count) {
  const Value::Dict& order = value_at(saved, kElasticKey).as_dict(kElasticKey);
  ElasticState state{order.at("seed", kElasticKey).as_int(kElasticKey),
                     order.at("num_lanes", kElasticKey).as_int(kElasticKey),
                     order.at("num_items", kElasticKey).as_ints(kElasticKey),
                     {}};
  for (std::int64_t lane = first_lane; lane < first_lane + count; ++lane) {
    const std::string key = lane_key(lane);
    const auto found = saved.find(key);
    if (found == saved.end()) continue;
    const auto numbers = found->second.as_ints(key);
    if (numbers.empty()) throw CheckpointError(key + " is empty");
    state.lanes.push_back({lane, numbers[0], {numbers.begin() + 1, numbers.end()}});
  }
  return state;
}

}  // namespace titan::data
