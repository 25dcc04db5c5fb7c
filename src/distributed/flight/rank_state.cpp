#include "distributed/flight/rank_state.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/process/phase.h"
#include "base/process/step_work.h"

namespace titan::dist {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CollectiveFact, number, kind, input_numel, output_numel, dtype, label, state, age,
                                   phase, peer)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GroupFact, name, ranks, runs_beside, started, recent, transfers, sent, received,
                                   queued)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankState, rank, step, phase, seconds, groups, work)

bool CollectiveFact::matches(const CollectiveFact& other) const {
  return kind == other.kind && input_numel == other.input_numel && output_numel == other.output_numel &&
         dtype == other.dtype && label == other.label;
}

const char* other_end(std::string_view kind) { return kind == "send" ? "receive" : "send"; }

std::uint64_t GroupFact::count(std::string_view kind, int peer) const {
  const auto& counts = kind == "send" ? sent : received;
  const auto member = static_cast<std::size_t>(std::ranges::find(ranks, peer) - ranks.begin());
  return member < counts.size() ? counts[member] : 0;
}

const CollectiveFact* GroupFact::find_transfer(std::string_view kind, int peer, std::uint64_t number) const {
  const auto found = std::ranges::find_if(transfers, [&](const CollectiveFact& fact) {
    return fact.kind == kind && fact.peer == peer && fact.number == number;
  });
  return found == transfers.end() ? nullptr : &*found;
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
          std::string(name_of(record.phase)),
          record.peer};
}

}  // namespace

RankState current_state(int rank) {
  const auto now = std::chrono::steady_clock::now();
  const PhaseAt at = flight_recorder().phase();
  RankState state{rank,
                  at.step,
                  std::string(name_of(at.phase)),
                  seconds_between(at.since, now),
                  {},
                  step_work().of_pipeline(at.phase)};
  for (auto& history : flight_recorder().groups()) {
    GroupFact group{std::move(history.name), std::move(history.ranks), history.runs_beside, history.started, {}};
    for (const auto& record : history.recent) group.recent.push_back(fact_of(record, now));
    for (const auto& record : history.transfers) group.transfers.push_back(fact_of(record, now));
    group.sent = std::move(history.sent);
    group.received = std::move(history.received);
    if (history.queued) group.queued.push_back(fact_of(*history.queued, now));
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
