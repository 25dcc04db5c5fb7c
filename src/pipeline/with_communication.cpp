#include "pipeline/with_communication.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "pipeline/check_schedule.h"
#include "pipeline/pipeline_keys.h"

namespace titan::pipeline {
namespace {

using Steps = std::vector<Step>;

constexpr std::size_t kGatheredStages = 3;  // one forward, one backward, and one that is gathered ahead

// Counts what is left of a rank's order, stage by stage.
class Remaining {
 public:
  explicit Remaining(const Steps& steps) {
    for (const Step& step : steps)
      for (const Action& action : step.actions()) ++actions_[action.stage];
  }

  void remove(const Step& step) {
    for (const Action& action : step.actions())
      if (--actions_[action.stage] == 0) actions_.erase(action.stage);
  }

  std::size_t num_stages() const { return actions_.size(); }

 private:
  std::map<int, int> actions_;  // of each stage
};

// Returns the stages of the next steps in the order of their use: kGatheredStages, or one more if the last two are a
// pair.
std::vector<int> next_stages(std::span<const Step> steps, std::size_t num_left) {
  const std::size_t wanted = std::min(kGatheredStages, num_left);
  std::vector<int> stages;
  for (const Step& step : steps) {
    for (const Action& action : step.actions())
      if (std::ranges::count(stages, action.stage) == 0) stages.push_back(action.stage);
    if (stages.size() >= wanted) break;
  }
  return stages;
}

Steps with_gathers(const Steps& steps) {
  Steps out;
  Remaining remaining(steps);
  std::set<int> gathered;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto next = next_stages(std::span(steps).subspan(i), remaining.num_stages());
    for (auto stage = gathered.begin(); stage != gathered.end();) {
      if (std::ranges::count(next, *stage) > 0) {
        ++stage;
        continue;
      }
      out.emplace_back(Action{*stage, Kind::kReshard});
      stage = gathered.erase(stage);
    }
    for (const int stage : next)
      if (gathered.insert(stage).second) out.emplace_back(Action{stage, Kind::kUnshard});
    out.push_back(steps[i]);
    remaining.remove(steps[i]);
  }
  for (const int stage : gathered) out.emplace_back(Action{stage, Kind::kReshard});
  return out;
}

Steps with_reductions(const Steps& steps, int num_microbatches) {
  Steps out;
  std::map<int, int> done;  // of each stage
  for (const Step& step : steps) {
    out.push_back(step);
    for (const Action& action : step.actions())
      if (makes_weight_gradients(action.kind) && ++done[action.stage] == num_microbatches)
        out.emplace_back(Action{action.stage, Kind::kReduceGradients});
  }
  return out;
}

// Adds the messages. It takes the ranks in turn, a step of each that can go on; the step's messages enter the order of
// the sender and of the receiver at once.
class Messages {
 public:
  explicit Messages(const PipelineSchedule& schedule)
      : schedule_(schedule), out_(schedule), next_(schedule.orders.size()) {
    for (Steps& order : out_.orders) order.clear();
  }

  PipelineSchedule add() {
    for (bool any = true; any;) {
      any = false;
      for (int rank = 0; rank < schedule_.num_ranks(); ++rank)
        if (can_go_on(rank)) {
          go_on(rank);
          any = true;
        }
    }
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank)
      TITAN_CHECK(next_[rank] == schedule_.orders[rank].size(), "an order of computation without a fault ends");
    return std::move(out_);
  }

 private:
  using Place = std::pair<int, int>;  // stage and microbatch

  bool can_go_on(int rank) const {
    const Steps& order = schedule_.orders[rank];
    return next_[rank] < order.size() &&
           std::ranges::all_of(order[next_[rank]].actions(),
                               [this](const Action& action) { return has_input(action); });
  }

  bool has_input(const Action& action) const {
    if (giving_stage(schedule_, action) < 0) return true;
    const auto& inputs = action.kind == Kind::kForward ? forward_inputs_ : backward_inputs_;
    return inputs.contains({action.stage, action.microbatch});
  }

  void go_on(int rank) {
    const Step& step = schedule_.orders[rank][next_[rank]++];
    out_.orders[rank].push_back(step);
    for (const Action& action : step.actions()) {
      const int to = receiving_stage(schedule_, action);
      if (to < 0) continue;
      const bool is_forward = action.kind == Kind::kForward;
      (is_forward ? forward_inputs_ : backward_inputs_).insert({to, action.microbatch});
      if (!is_message(schedule_, action.stage, to)) continue;
      const Kind send = is_forward ? Kind::kSendForward : Kind::kSendBackward;
      const Kind receive = is_forward ? Kind::kReceiveForward : Kind::kReceiveBackward;
      out_.orders[rank].emplace_back(Action{action.stage, send, action.microbatch});
      out_.orders[schedule_.rank_of_stage[to]].emplace_back(Action{to, receive, action.microbatch});
    }
  }

  const PipelineSchedule& schedule_;
  PipelineSchedule out_;
  std::vector<std::size_t> next_;  // step of each rank
  std::set<Place> forward_inputs_, backward_inputs_;
};

}  // namespace

PipelineSchedule with_communication(const PipelineSchedule& schedule) {
  if (const auto fault = find_wrong_computation(schedule)) throw DataError(*fault, {kCsvKey});
  PipelineSchedule prepared = schedule;
  for (Steps& order : prepared.orders) order = with_reductions(with_gathers(order), schedule.num_microbatches);
  return Messages(prepared).add();
}

PipelineSchedule forwards_alone(const std::vector<int>& rank_of_stage, int num_microbatches) {
  PipelineSchedule out{.num_microbatches = num_microbatches, .rank_of_stage = rank_of_stage, .orders = {}};
  const int num_ranks = std::ranges::max(rank_of_stage) + 1;
  for (int rank = 0; rank < num_ranks; ++rank) {
    Steps& order = out.orders.emplace_back();
    for (int begin = 0; begin < num_microbatches; begin += num_ranks)
      for (const int stage : stages_of_rank(out, rank))
        for (int microbatch = begin; microbatch < std::min(begin + num_ranks, num_microbatches); ++microbatch)
          order.emplace_back(Action{stage, Kind::kForward, microbatch});
  }
  return Messages(out).add();
}

int num_messages(const PipelineSchedule& schedule) {
  int count = 0;
  for (const Steps& order : schedule.orders)
    for (const Step& step : order) count += sends(step.first().kind) ? 1 : 0;
  return count;
}

}  // namespace titan::pipeline
