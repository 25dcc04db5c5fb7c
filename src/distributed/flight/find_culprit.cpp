#include "distributed/flight/find_culprit.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "distributed/flight/hang_words.h"

namespace titan::dist {
namespace hang {
namespace {

// ---------------------------------------------------------------------------------------------------- 1: disagreement

// The different versions of a collective, each with its ranks.
using Versions = std::vector<std::pair<const CollectiveFact*, std::set<int>>>;

Versions versions_of(const Group& group, std::uint64_t number) {
  Versions versions;
  for (const auto& [rank, fact] : group.members) {
    const auto* mine = find_number(*fact, number);
    if (!mine) continue;
    auto same = std::ranges::find_if(versions, [&](const auto& version) { return version.first->matches(*mine); });
    if (same == versions.end()) same = versions.insert(same, {mine, {}});
    same->second.insert(rank);
  }
  // The version that most ranks have comes first; on a tie, the one of the lowest rank.
  std::ranges::stable_sort(versions, std::greater(), [](const auto& version) { return version.second.size(); });
  return versions;
}

// True if `late` has `early`'s collectives from `number` on, `shift` numbers later: at least one matches, and so do
// all that both records hold.
bool follows(const GroupFact& late, const GroupFact& early, std::uint64_t number, std::uint64_t shift) {
  int same = 0;
  for (const auto& fact : late.recent) {
    if (fact.number < number + shift) continue;
    const auto* other = find_number(early, fact.number - shift);
    if (!other) continue;
    if (!fact.matches(*other)) return false;
    ++same;
  }
  return same > 0;
}

// Returns how many collectives `one` left out or has too many; empty if the records do not show it.
std::string missing_or_extra(const GroupFact& one, const GroupFact& others, std::uint64_t number) {
  for (std::uint64_t shift = 1; shift < FlightRecorder::kRecent; ++shift) {
    if (follows(others, one, number, shift))
      return counted(static_cast<std::int64_t>(shift), "collective") + " left out";
    if (follows(one, others, number, shift))
      return counted(static_cast<std::int64_t>(shift), "collective") + " too many";
  }
  return "";
}

std::optional<Finding> find_disagreement(const Group& group) {
  std::set<std::uint64_t> numbers;
  for (const auto& [rank, fact] : group.members)
    for (const auto& collective : fact->recent) numbers.insert(collective.number);
  for (const auto number : numbers) {
    const auto versions = versions_of(group, number);
    if (versions.size() < 2) continue;
    const auto& [usual, many] = versions[0];
    const auto& [other, few] = versions[1];
    const int rank = *few.begin();
    std::string reason = "disagrees on " + place_of(group, number) + ": " + describe(*other) + ", where " +
                         with_verb(many, "has ", "have ") + describe(*usual);
    if (few.size() > 1) reason += " (so do all of " + name_ranks(few) + ")";
    const auto how = missing_or_extra(*group.members.at(rank), *group.members.at(*many.begin()), number);
    return Finding{rank, how.empty() ? reason : reason + "; it has " + how};
  }
  return std::nullopt;
}

// Finds a message for which sender and receiver have different sizes or dtypes.
std::optional<Finding> find_odd_message(const Group& group) {
  for (const auto& [rank, fact] : group.members) {
    for (const auto& receive : fact->transfers) {
      const auto sender = group.members.find(receive.peer);
      if (receive.kind != "receive" || sender == group.members.end()) continue;
      const auto* send = sender->second->find_transfer("send", rank, receive.number);
      if (!send || size_of(*send) == size_of(receive)) continue;
      const auto peer = "rank " + std::to_string(receive.peer);
      return Finding{rank, "receives " + size_of(receive) + " as message " + place_of(group, receive.number) +
                               " from " + peer + ", where " + peer + " sends " + size_of(*send)};
    }
  }
  return std::nullopt;
}

// ---------------------------------------------------------------------------------------------------- 2 and 3: absence

class Blame {
 public:
  Blame(const States& states, const std::vector<Wait>& waits) : states_(states), waits_(waits) {
    for (const auto& wait : waits)
      for (const int rank : absent_from(wait)) (waits_itself(rank, *wait.group) ? victims_ : guilty_).insert(rank);
  }

  std::optional<Finding> find() const {
    if (!guilty_.empty()) return of_guilty();
    if (!victims_.empty()) return of_victims();
    return std::nullopt;
  }

 private:
  // Returns the ranks that have not started the collective of `wait`, or the other end of its transfer.
  static std::vector<int> absent_from(const Wait& wait) {
    std::vector<int> absent;
    if (const auto& what = *wait.what; what.is_transfer()) {
      const auto peer = wait.group->members.find(what.peer);
      const bool is_there =
          peer != wait.group->members.end() && peer->second->count(other_end(what.kind), wait.rank) >= what.number;
      if (!is_there) absent.push_back(what.peer);
      return absent;
    }
    for (const int rank : wait.group->ranks) {
      const auto member = wait.group->members.find(rank);
      if (member == wait.group->members.end() || member->second->started < wait.what->number) absent.push_back(rank);
    }
    return absent;
  }

  const std::optional<RankState>& state_of(int rank) const {
    static const std::optional<RankState> kNone;
    return rank < static_cast<int>(states_.size()) ? states_[static_cast<std::size_t>(rank)] : kNone;
  }

  // True if the thread of `rank` that runs `group`'s collectives is blocked in another one. The training thread may
  // also wait for a checkpoint save that is blocked in one.
  bool waits_itself(int rank, const Group& group) const {
    const auto& state = state_of(rank);
    return std::ranges::any_of(waits_, [&](const Wait& wait) {
      if (wait.rank != rank) return false;
      return wait.group->runs_beside == group.runs_beside ||
             (wait.group->runs_beside && state && state->phase == name_of(Phase::kCheckpoint));
    });
  }

  double busy_seconds(int rank) const { return state_of(rank) ? state_of(rank)->seconds : 1e300; }

  // Returns the first wait for `rank`, and all ranks that wait in the same collective.
  std::pair<const Wait*, std::set<int>> wait_for(int rank) const {
    const Wait* first = nullptr;
    std::set<int> ranks;
    for (const auto& wait : waits_) {
      const auto absent = absent_from(wait);
      if (std::ranges::find(absent, rank) == absent.end()) continue;
      if (!first) first = &wait;
      const bool is_same = wait.group == first->group && wait.what->number == first->what->number &&
                           !wait.what->is_transfer() && !first->what->is_transfer();
      if (&wait == first || is_same) ranks.insert(wait.rank);
    }
    return {first, ranks};
  }

  Finding of_guilty() const {
    const int rank = *std::ranges::max_element(guilty_, {}, [&](int r) { return busy_seconds(r); });
    const auto [wait, ranks] = wait_for(rank);
    const std::string where = describe(*wait->what) + ", " + place_of(*wait);
    const auto waiting = ", while " + with_verb(ranks, "waits", "wait") + " for it in " + where;
    std::string reason;
    if (const auto& state = state_of(rank); !state) {
      reason = "does not answer, though its process runs (a call of the system that does not end?)" + waiting;
    } else if (wait->group->runs_beside) {
      reason = "has not come to a collective in the background" + waiting + "; its own step is " +
               std::to_string(state->step) + " (" + state->phase + " for " + in_seconds(state->seconds) + ")";
    } else {
      reason = "has been in " + state->phase + " for " + in_seconds(state->seconds) + " " + at_step(*state) + waiting;
    }
    std::set<int> rest = guilty_;
    rest.erase(rank);
    if (!rest.empty())
      reason += std::string("; nor ") + (rest.size() == 1 ? "has " : "have ") + name_ranks(rest) +
                " come to where others wait";
    return {rank, reason};
  }

  // Every absent rank waits itself: the waits form a cycle.
  Finding of_victims() const {
    const int rank = *victims_.begin();
    const auto [wait, ranks] = wait_for(rank);
    const auto own = std::ranges::find(waits_, rank, &Wait::rank);
    const bool is_message = own->what->is_transfer() || wait->what->is_transfer();
    return {rank, "waits in " + describe(*own->what) + ", " + place_of(*own) + ", while " +
                      with_verb(ranks, "waits", "wait") + " for it in " + describe(*wait->what) + ", " +
                      place_of(*wait) +
                      (is_message ? ": each waits before it has started what the other one needs"
                                  : ": the ranks start the collectives of these groups in different orders")};
  }

  const States& states_;
  const std::vector<Wait>& waits_;
  std::set<int> guilty_, victims_;
};

// -------------------------------------------------------------------------------------------------- 4 and 5: all there

// Returns a rank's record of what `wait` waits for; null if it is long past it.
const CollectiveFact* record_of(const Wait& wait, int rank, const GroupFact& fact) {
  const auto& what = *wait.what;
  if (!what.is_transfer()) return find_number(fact, what.number);
  return rank == wait.rank ? &what : fact.find_transfer(other_end(what.kind), wait.rank, what.number);
}

std::optional<Finding> find_latecomer(const Wait& wait) {
  std::optional<std::pair<double, int>> first, last;  // age, rank
  for (const auto& [rank, fact] : wait.group->members) {
    if (wait.what->is_transfer() && rank != wait.rank && rank != wait.what->peer) continue;
    const auto* collective = record_of(wait, rank, *fact);
    if (!collective) return std::nullopt;  // this rank is long past it
    const std::pair came(collective->age, rank);
    if (!first || came > *first) first = came;
    if (!last || came < *last) last = came;
  }
  if (last->first > first->first / 2) return std::nullopt;
  return Finding{last->second, "came to " + describe(*wait.what) + ", " + place_of(wait) + ", " +
                                   in_seconds(first->first - last->first) + " after rank " +
                                   std::to_string(first->second)};
}

Finding all_there(const Wait& wait) {
  return {-1, "all its ranks have started " + describe(*wait.what) + ", " + place_of(wait) +
                  ", and it does not end: look at the network between them, or at their devices"};
}

// Finds the rank that has started the fewest collectives. If the devices wait for each other, no thread does, but the
// host of the rank that hangs falls behind.
std::optional<Finding> find_behind(const States& states, const std::vector<Group>& groups) {
  std::optional<std::pair<int, const Group*>> last;
  std::uint64_t most = 0, fewest = 0;
  for (const auto& group : groups) {
    if (group.runs_beside || group.members.empty() || last) continue;
    const auto started = [](const auto& member) { return member.second->started; };
    const auto [low, high] = std::ranges::minmax_element(group.members, {}, started);
    if (low->second->started == high->second->started) continue;
    last = {low->first, &group};
    fewest = low->second->started;
    most = high->second->started;
  }
  if (!last) return std::nullopt;
  const RankState& state = *states[static_cast<std::size_t>(last->first)];
  return Finding{last->first, "has been in " + state.phase + " for " + in_seconds(state.seconds) + " " +
                                  at_step(state) + ", with " + std::to_string(fewest) + " collectives of '" +
                                  last->second->name + "' started, where others have " + std::to_string(most)};
}

// Finds the rank that has not started the other end of a message, and to which no rank owes one.
std::optional<Finding> find_owing(const States& states, const std::vector<Group>& groups) {
  struct Debt {
    const Group* group;
    std::string kind;
    int to;
    std::uint64_t has, needs;
  };
  std::map<int, Debt> debts;
  std::set<int> owed;
  for (const auto& group : groups) {
    for (const auto& [rank, fact] : group.members) {
      for (const auto& [peer, other] : group.members) {
        for (const std::string kind : {"send", "receive"}) {
          const auto has = fact->count(kind, peer), needs = other->count(other_end(kind), rank);
          if (group.runs_beside || has >= needs) continue;
          debts.try_emplace(rank, Debt{&group, kind, peer, has, needs});
          owed.insert(peer);
        }
      }
    }
  }
  const auto root = std::ranges::find_if(debts, [&](const auto& debt) { return !owed.contains(debt.first); });
  if (root == debts.end()) return std::nullopt;
  const auto& [rank, debt] = *root;
  const RankState& state = *states[static_cast<std::size_t>(rank)];
  return Finding{rank, "has been in " + state.phase + " for " + in_seconds(state.seconds) + " " + at_step(state) +
                           ", with " + counted(static_cast<std::int64_t>(debt.has), debt.kind) +
                           words_before_peer(debt.kind) + std::to_string(debt.to) + " over '" + debt.group->name +
                           "' started, where that rank has started the other ends of " + std::to_string(debt.needs)};
}

// Finds the collective that devices have not finished for the longest time, though every host has started it. Blames no
// rank: a device may lag because of its own kernels, its links, or another device.
std::optional<Finding> find_on_devices(const std::vector<Group>& groups) {
  const auto oldest = find_oldest_queued(groups);
  if (!oldest) return std::nullopt;
  const auto& members = oldest->group->members;
  const CollectiveFact* what = oldest->what;
  for (const auto& [rank, fact] : members)
    if (!fact->queued.empty() && fact->queued.front().number < what->number) what = &fact->queued.front();
  std::set<int> in, past;
  for (const auto& [rank, fact] : members)
    (!fact->queued.empty() && fact->queued.front().number == what->number ? in : past).insert(rank);
  const std::string where = describe(*what) + ", " + place_of(*oldest->group, what->number);
  if (past.empty())
    return Finding{-1, "all its ranks have started " + where +
                           ", and their devices do not finish it: look at the network between them, or at the devices"};
  return Finding{-1, (in.size() == 1 ? "the device of " : "the devices of ") + name_ranks(in) + " had not finished " +
                         where + ", when " + (past.size() == 1 ? "that of " : "those of ") + name_ranks(past) + " had"};
}

}  // namespace
}  // namespace hang

std::optional<Finding> find_culprit(const std::vector<std::optional<RankState>>& states) {
  using namespace hang;  // NOLINT(google-build-using-namespace)
  const auto groups = groups_of(states);
  const auto waits = waits_of(groups);
  for (const auto& group : groups)
    if (auto found = find_disagreement(group)) return found;
  for (const auto& group : groups)
    if (auto found = find_odd_message(group)) return found;
  if (waits.empty()) {
    if (auto found = find_behind(states, groups)) return found;
    if (auto found = find_owing(states, groups)) return found;
    return find_on_devices(groups);
  }
  if (auto found = Blame(states, waits).find()) return found;
  for (const auto& wait : waits)
    if (auto found = find_latecomer(wait)) return found;
  return all_there(waits.front());
}

std::vector<std::string> summarize(const std::vector<std::optional<RankState>>& states) {
  std::vector<std::pair<std::string, std::set<int>>> lines;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    const std::string text = states[rank] ? hang::describe_rank(*states[rank]) : "does not answer";
    auto same = std::ranges::find(lines, text, &std::pair<std::string, std::set<int>>::first);
    if (same == lines.end()) same = lines.insert(same, {text, {}});
    same->second.insert(static_cast<int>(rank));
  }
  std::vector<std::string> out;
  for (const auto& [text, ranks] : lines) out.push_back(hang::name_ranks(ranks) + ": " + text);
  return out;
}

}  // namespace titan::dist
