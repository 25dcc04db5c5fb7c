#include "distributed/flight/hang_words.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <utility>

namespace titan::dist::hang {

std::vector<Group> groups_of(const States& states) {
  std::map<std::pair<std::string, std::vector<int>>, Group> found;
  for (const auto& state : states) {
    if (!state) continue;
    for (const auto& fact : state->groups) {
      Group& group = found[{fact.name, fact.ranks}];
      group.name = fact.name;
      group.ranks = fact.ranks;
      group.runs_beside |= fact.runs_beside;
      group.members[state->rank] = &fact;
    }
  }
  std::vector<Group> groups;
  for (auto& [key, group] : found) groups.push_back(std::move(group));
  // Background groups come last: their waits say less, since training can run on for long without them.
  std::ranges::stable_sort(groups, {}, &Group::runs_beside);
  return groups;
}

const CollectiveFact* find_number(const GroupFact& group, std::uint64_t number) {
  const auto found = std::ranges::find(group.recent, number, &CollectiveFact::number);
  return found == group.recent.end() ? nullptr : &*found;
}

std::vector<Wait> waits_of(const std::vector<Group>& groups) {
  constexpr auto holds = [](CollectiveState state) { return holds_thread(state); };
  std::vector<Wait> waits;
  for (const auto& group : groups) {
    for (const auto& [rank, fact] : group.members) {
      const auto held = std::ranges::find_if(fact->recent, holds, &CollectiveFact::state);
      if (held != fact->recent.end()) waits.push_back({rank, &group, &*held});
      const auto transfer = std::ranges::find_if(fact->transfers, holds, &CollectiveFact::state);
      if (transfer != fact->transfers.end()) waits.push_back({rank, &group, &*transfer});
    }
  }
  return waits;
}

std::optional<Wait> find_oldest_queued(const std::vector<Group>& groups) {
  std::optional<Wait> oldest;
  for (const auto& group : groups)
    for (const auto& [rank, fact] : group.members)
      for (const auto& queued : fact->queued)
        if (!oldest || queued.age > oldest->what->age) oldest = Wait{rank, &group, &queued};
  return oldest;
}

std::string name_ranks(const std::set<int>& ranks) {
  std::string text;
  for (auto it = ranks.begin(); it != ranks.end();) {
    const int first = *it;
    int last = first;
    while (++it != ranks.end() && *it == last + 1) last = *it;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (last > first) text += (last == first + 1 ? ", " : "-") + std::to_string(last);
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::string with_verb(const std::set<int>& ranks, const char* one, const char* several) {
  return name_ranks(ranks) + " " + (ranks.size() == 1 ? one : several);
}

std::string in_seconds(double seconds) { return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 1 : 0); }

std::string size_of(const CollectiveFact& transfer) {
  return std::to_string(std::max(transfer.input_numel, transfer.output_numel)) + " elements of " + transfer.dtype;
}

std::string describe(const CollectiveFact& fact) {
  std::string text = fact.kind;
  if (fact.is_transfer()) {
    text = "a " + text + " of " + size_of(fact) + words_before_peer(fact.kind) + std::to_string(fact.peer);
  } else if (fact.input_numel != 0 || fact.output_numel != 0) {
    text += " of " + std::to_string(fact.input_numel);
    if (fact.output_numel != fact.input_numel) text += " -> " + std::to_string(fact.output_numel);
    text += " elements of " + fact.dtype;
  }
  return fact.label.empty() ? text : text + " for " + fact.label;
}

std::string place_of(const Group& group, std::uint64_t number) {
  return "no. " + std::to_string(number) + " of '" + group.name + "'";
}

std::string place_of(const Wait& wait) {
  return (wait.what->is_transfer() ? "message " : "") + place_of(*wait.group, wait.what->number);
}

std::string at_step(const RankState& state) {
  const std::string at = state.step > 0 ? "at step " + std::to_string(state.step) : "before the first step";
  return state.work.empty() ? at : at + " (" + state.work + ")";
}

namespace {

// Returns what the device of a rank does whose host is in no collective.
std::string of_device(const std::vector<Group>& groups) {
  const auto queued = find_oldest_queued(groups);
  if (!queued) return ", in no collective";
  return "; its device has not finished " + describe(*queued->what) + ", " + place_of(*queued) + ", since " +
         in_seconds(queued->what->age);
}

}  // namespace

std::string describe_rank(const RankState& state) {
  const States only = {state};
  const auto groups = groups_of(only);
  const auto waits = waits_of(groups);
  std::string text = at_step(state) + ", in " + (waits.empty() ? state.phase : waits.front().what->phase);
  if (waits.empty()) text += " for " + in_seconds(state.seconds) + of_device(groups);
  for (const auto& wait : waits)
    text += "; waits in " + describe(*wait.what) + ", " + place_of(wait) + ", since " + in_seconds(wait.what->age);
  return text;
}

}  // namespace titan::dist::hang
