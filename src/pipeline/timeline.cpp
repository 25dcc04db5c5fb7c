#include "pipeline/timeline.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "pipeline/places.h"

namespace titan::pipeline {
namespace {

constexpr double kNotYet = std::numeric_limits<double>::infinity();

class Simulation {
 public:
  Simulation(const PipelineSchedule& schedule, const Costs& costs)
      : schedule_(schedule), costs_(costs), rank_ends_(schedule.orders.size()) {
    for (auto* ends : {&forward_ends_, &backward_ends_})
      ends->assign(static_cast<std::size_t>(schedule.num_stages()) * schedule.num_microbatches, kNotYet);
    timeline_.ranks.resize(schedule.orders.size());
  }

  Timeline run() {
    const auto stands = walk(schedule_, [this](int rank, std::size_t i) { return try_step(rank, i); });
    double busy = 0;
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      TITAN_CHECK(stands[rank] == schedule_.orders[rank].size(), "only a schedule without a fault can be simulated");
      RankTimeline& line = timeline_.ranks[rank];
      for (const TimedStep& step : line.steps) line.busy += step.end - step.begin;
      if (!line.steps.empty()) line.idle_between = line.steps.back().end - line.steps.front().begin - line.busy;
      timeline_.makespan = std::max(timeline_.makespan, rank_ends_[rank]);
      busy += line.busy;
    }
    if (timeline_.makespan > 0) timeline_.bubble = 1 - busy / (timeline_.makespan * schedule_.num_ranks());
    return std::move(timeline_);
  }

 private:
  double& end_of(int stage, Kind kind, int microbatch) {
    auto& ends = kind == Kind::kForward ? forward_ends_ : backward_ends_;
    return ends[static_cast<std::size_t>(stage) * schedule_.num_microbatches + microbatch];
  }

  bool try_step(int rank, std::size_t index) {
    const Step& step = schedule_.orders[rank][index];
    if (!computes(step.first().kind)) return true;
    double begin = rank_ends_[rank];
    for (const Action& action : step.actions())
      if (const int giver = giving_stage(schedule_, action); giver >= 0)
        begin = std::max(begin, end_of(giver, action.kind, action.microbatch));
    if (begin == kNotYet) return false;
    const double end = begin + costs_.of(step);
    for (const Action& action : step.actions())
      if (action.kind != Kind::kWeightGradient) end_of(action.stage, action.kind, action.microbatch) = end;
    rank_ends_[rank] = end;
    timeline_.ranks[rank].steps.push_back({index, begin, end});
    return true;
  }

  const PipelineSchedule& schedule_;
  Costs costs_;
  std::vector<double> rank_ends_;
  std::vector<double> forward_ends_, backward_ends_;  // of each stage and microbatch
  Timeline timeline_;
};

}  // namespace

double Costs::of(const Action& action) const {
  switch (action.kind) {
    case Kind::kForward:
      return forward;
    case Kind::kBackward:
      return input_gradient + weight_gradient;
    case Kind::kInputGradient:
      return input_gradient;
    case Kind::kWeightGradient:
      return weight_gradient;
    default:
      return 0;
  }
}

double Costs::of(const Step& step) const {
  double sum = 0;
  for (const Action& action : step.actions()) sum += of(action);
  return sum;
}

Timeline simulate(const PipelineSchedule& schedule, const Costs& costs) { return Simulation(schedule, costs).run(); }

std::vector<RankMemory> memory_in_flight(const PipelineSchedule& schedule) {
  std::vector<RankMemory> memory;
  for (const auto& order : schedule.orders) {
    RankMemory most, now;
    for (const Step& step : order) {
      // A pair's forward begins before its backward has freed anything.
      for (const Action& action : step.actions()) {
        now.activations += action.kind == Kind::kForward ? 1 : 0;
        now.between_halves += action.kind == Kind::kInputGradient ? 1 : 0;
      }
      most.activations = std::max(most.activations, now.activations);
      most.between_halves = std::max(most.between_halves, now.between_halves);
      for (const Action& action : step.actions()) {
        now.activations -= makes_weight_gradients(action.kind) ? 1 : 0;
        now.between_halves -= action.kind == Kind::kWeightGradient ? 1 : 0;
      }
    }
    memory.push_back(most);
  }
  return memory;
}

}  // namespace titan::pipeline
