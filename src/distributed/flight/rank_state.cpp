#include "distributed/flight/rank_state.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/process/phase.h"

namespace titan::dist {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CollectiveFact, number, kind, input_numel, output_numel, dtype, label, state, age,
                                   phase)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GroupFact, name, ranks, runs_beside, started, recent)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankState, rank, step, phase, seconds, groups)

bool CollectiveFact::matches(const CollectiveFact& other) const {
  return kind == other.kind && input_numel == other.input_numel && output_numel == other.output_numel &&
         dtype == other.dtype && label == other.label;
}

namespace {

CollectiveFact fact_of(const CollectiveRecord& record, TimePoint now) {
  return {record.number,
          record.kind,
          record.input_numel,
          record.output_numel,
          std::string(c10::getDtypeNames(record.dtype).first),
          record.label.data(),
          record.state,
          seconds_between(record.started, now),
          std::string(name_of(record.phase))};
}

}  // namespace

RankState current_state(int rank) {
  const auto now = std::chrono::steady_clock::now();
  const PhaseAt at = flight_recorder().phase();
  RankState state{rank, at.step, std::string(name_of(at.phase)), seconds_between(at.since, now), {}};
  for (auto& history : flight_recorder().groups()) {
    GroupFact group{std::move(history.name), std::move(history.ranks), history.runs_beside, history.started, {}};
    for (const auto& record : history.recent) group.recent.push_back(fact_of(record, now));
    state.groups.push_back(std::move(group));
  }
  return state;
}

std::string to_json(const RankState& state) {
  // A label cut at its start may begin within a UTF-8 character.
  return nlohmann::json(state).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankState rank_state_from_json(const std::string& text) { return nlohmann::json::parse(text).get<RankState>(); }

}  // namespace titan::dist
