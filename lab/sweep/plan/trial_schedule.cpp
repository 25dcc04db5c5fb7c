#include "lab/sweep/plan/trial_schedule.h"

#include <algorithm>

#include "base/error.h"

namespace titan::sweep {

const char* to_string(State state) {
  switch (state) {
    case State::kPending:
      return "pending";
    case State::kRunning:
      return "running";
    case State::kPaused:
      return "paused";
    case State::kDone:
      return "done";
    case State::kFailed:
      return "failed";
  }
  throw InternalError("a trial in no known state");
}

bool Schedule::any(State state) const { return std::ranges::count(trials_, state, &Trial::state) > 0; }

std::optional<std::size_t> Schedule::next() const {
  const auto find = [&](auto condition) -> std::optional<std::size_t> {
    const auto it = std::ranges::find_if(trials_, condition);
    return it == trials_.end() ? std::nullopt : std::optional(static_cast<std::size_t>(it - trials_.begin()));
  };
  const auto pending = [](const Trial& t) { return t.state == State::kPending; };
  if (const auto trial = find([&](const Trial& t) { return pending(t) && t.starts > 0; })) return trial;
  for (std::size_t rung = rules_.rungs.size(); rung-- > 0;)
    if (const auto trial = find_promotion(rung)) return trial;
  if (const auto trial = find(pending)) return trial;
  if (!any(State::kRunning) && !any(State::kDone)) return best_paused();
  return std::nullopt;
}

// Returns the best of the paused trials at `rung` that may be promoted.
std::optional<std::size_t> Schedule::find_promotion(std::size_t rung) const {
  std::vector<std::size_t> finished;
  std::size_t num_failed = 0;
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    if (trials_[i].rung_objectives.size() > rung) finished.push_back(i);
    if (trials_[i].state == State::kFailed && trials_[i].rung_objectives.size() == rung) ++num_failed;
  }
  std::ranges::stable_sort(finished, [&](std::size_t a, std::size_t b) {
    return is_better(trials_[a].rung_objectives[rung], trials_[b].rung_objectives[rung], rules_.maximize);
  });
  const std::size_t room = (finished.size() + num_failed) / static_cast<std::size_t>(rules_.reduction_factor);
  for (std::size_t i = 0; i < std::min(room, finished.size()); ++i) {
    const Trial& trial = trials_[finished[i]];
    if (std::isnan(trial.rung_objectives[rung])) break;
    if (trial.state == State::kPaused && trial.rung_objectives.size() == rung + 1) return finished[i];
  }
  return std::nullopt;
}

std::optional<std::size_t> Schedule::best_paused() const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    const Trial& trial = trials_[i];
    if (trial.state != State::kPaused || std::isnan(trial.rung_objectives.back())) continue;
    if (best) {
      const Trial& other = trials_[*best];
      const auto rungs = trial.rung_objectives.size(), other_rungs = other.rung_objectives.size();
      if (rungs < other_rungs) continue;
      if (rungs == other_rungs &&
          !is_better(trial.rung_objectives.back(), other.rung_objectives.back(), rules_.maximize))
        continue;
    }
    best = i;
  }
  return best;
}

void Schedule::start(std::size_t trial) {
  trials_[trial].state = State::kRunning;
  ++trials_[trial].starts;
}

void Schedule::finish(std::size_t trial, double objective) {
  Trial& t = trials_[trial];
  t.objective = objective;
  t.error.clear();
  t.rung_objectives.push_back(objective);
  t.state = t.rung_objectives.size() < rules_.rungs.size() ? State::kPaused : State::kDone;
}

void Schedule::fail(std::size_t trial, const std::string& error, bool may_retry) {
  Trial& t = trials_[trial];
  ++t.failures;
  t.error = error;
  t.state = may_retry && t.failures <= rules_.retries ? State::kPending : State::kFailed;
}

void Schedule::interrupt(std::size_t trial) { trials_[trial].state = State::kPending; }

void Schedule::retry_failed() {
  for (Trial& trial : trials_) {
    if (trial.state != State::kFailed) continue;
    trial.state = State::kPending;
    trial.failures = 0;
  }
}

}  // namespace titan::sweep
