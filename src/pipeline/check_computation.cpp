#include <algorithm>

#include "base/text.h"
#include "pipeline/check_schedule.h"
#include "pipeline/places.h"

namespace titan::pipeline {
namespace {

// The progress of one microbatch in one stage.
enum class Progress { kNone, kForward, kInputGradient, kDone };

// Checks the orders one by one.
class RankCheck {
 public:
  explicit RankCheck(const PipelineSchedule& schedule)
      : schedule_(schedule),
        progress_(static_cast<std::size_t>(schedule.num_stages()) * schedule.num_microbatches, Progress::kNone) {}

  std::optional<std::string> find_fault() {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank)
      for (std::size_t i = 0; i < schedule_.orders[rank].size(); ++i)
        if (const std::string fault = fault_of_step(rank, schedule_.orders[rank][i]); !fault.empty())
          return place_text(schedule_, rank, i) + ": " + fault;
    for (int stage = 0; stage < schedule_.num_stages(); ++stage)
      for (int i = 0; i < schedule_.num_microbatches; ++i)
        if (progress(stage, i) != Progress::kDone) return missing_text(stage, i);
    return std::nullopt;
  }

 private:
  Progress& progress(int stage, int microbatch) {
    return progress_[static_cast<std::size_t>(stage) * schedule_.num_microbatches + microbatch];
  }

  std::string fault_of_step(int rank, const Step& step) {
    for (const Action& action : step.actions()) {
      if (action.stage < 0 || action.stage >= schedule_.num_stages())
        return "there is no stage " + std::to_string(action.stage) + "; the last is " +
               std::to_string(schedule_.num_stages() - 1);
      const int owner = schedule_.rank_of_stage[action.stage];
      if (owner != rank) return "rank " + std::to_string(owner) + " has stage " + std::to_string(action.stage);
      if (!computes(action.kind)) continue;
      if (action.microbatch < 0 || action.microbatch >= schedule_.num_microbatches)
        return "there is no microbatch " + std::to_string(action.microbatch) + "; the last is " +
               std::to_string(schedule_.num_microbatches - 1);
      if (std::string fault = fault_of_progress(action); !fault.empty()) return fault;
    }
    return {};
  }

  std::string fault_of_progress(const Action& action) {
    Progress& now = progress(action.stage, action.microbatch);
    const auto text = [&action](Kind kind) { return to_text(Action{action.stage, kind, action.microbatch}); };
    if (action.kind == Kind::kForward) {
      if (now != Progress::kNone) return "this forward was done before";
      now = Progress::kForward;
    } else if (makes_input_gradient(action.kind)) {
      if (now == Progress::kNone) return text(Kind::kForward) + " has to come before it";
      if (now != Progress::kForward) return "this backward was done or begun before";
      now = action.kind == Kind::kBackward ? Progress::kDone : Progress::kInputGradient;
    } else {
      if (now == Progress::kDone) return "these weight gradients were computed before";
      if (now != Progress::kInputGradient) return text(Kind::kInputGradient) + " has to come before it";
      now = Progress::kDone;
    }
    return {};
  }

  std::string missing_text(int stage, int microbatch) {
    const auto text = [&](Kind kind) { return to_text(Action{stage, kind, microbatch}); };
    const Progress now = progress(stage, microbatch);
    const int rank = schedule_.rank_of_stage[stage];
    const std::string after =
        ", after its " + counted(static_cast<int>(schedule_.orders[rank].size()), "action") + ": ";
    std::string fault = "rank " + std::to_string(rank) + after;
    if (now == Progress::kNone) return fault + text(Kind::kForward) + " is missing";
    if (now == Progress::kInputGradient)
      return fault + text(Kind::kWeightGradient) + " is missing, the other half of " + text(Kind::kInputGradient);
    return fault + text(Kind::kBackward) + " is missing, or " + text(Kind::kInputGradient) + " and " +
           text(Kind::kWeightGradient);
  }

  const PipelineSchedule& schedule_;
  std::vector<Progress> progress_;  // of each stage and microbatch
};

// Walks through the computation of all ranks.
class ComputationWalk {
 public:
  explicit ComputationWalk(const PipelineSchedule& schedule) : schedule_(schedule) {
    for (auto* done : {&forward_done_, &backward_done_})
      done->assign(static_cast<std::size_t>(schedule.num_stages()) * schedule.num_microbatches, false);
  }

  std::optional<std::string> find_fault() {
    const auto stands =
        walk(schedule_, [this](int rank, std::size_t i) { return try_step(schedule_.orders[rank][i]); });
    std::string text = waiting_text(schedule_, stands, [this](int rank, std::size_t i) {
      for (const Action& action : schedule_.orders[rank][i].actions())
        if (!has_input(action)) return wanted(action);
      return std::string();
    });
    return text.empty() ? std::nullopt : std::optional(std::move(text));
  }

 private:
  std::vector<bool>::reference done(int stage, Kind kind, int microbatch) {
    auto& all = kind == Kind::kForward ? forward_done_ : backward_done_;
    return all[static_cast<std::size_t>(stage) * schedule_.num_microbatches + microbatch];
  }

  bool has_input(const Action& action) {
    const int giver = computes(action.kind) ? giving_stage(schedule_, action) : -1;
    return giver < 0 || done(giver, action.kind, action.microbatch);
  }

  bool try_step(const Step& step) {
    if (!std::ranges::all_of(step.actions(), [this](const Action& action) { return has_input(action); })) return false;
    for (const Action& action : step.actions())
      if (action.kind == Kind::kForward || makes_input_gradient(action.kind))
        done(action.stage, action.kind, action.microbatch) = true;
    return true;
  }

  std::string wanted(const Action& action) const {
    const Action giver{giving_stage(schedule_, action), action.kind, action.microbatch};
    if (action.kind == Kind::kForward) return to_text(giver);
    return "the backward of microbatch " + std::to_string(giver.microbatch) + " in stage " +
           std::to_string(giver.stage);
  }

  const PipelineSchedule& schedule_;
  std::vector<bool> forward_done_, backward_done_;  // of each stage and microbatch
};

}  // namespace

std::optional<std::string> find_wrong_computation(const PipelineSchedule& schedule) {
  if (auto fault = RankCheck(schedule).find_fault()) return fault;
  return ComputationWalk(schedule).find_fault();
}

}  // namespace titan::pipeline
