// debug.memory_check_freq: notices bits of weights, optimizer state, gathered parameters and gradients that change
// while nothing writes them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "metrics/event_log.h"
#include "train/guests/numerics/gather_check.h"
#include "train/guests/numerics/memory_check.h"
#include "train/guests/numerics/update_watch.h"
#include "train/step/step_guest.h"

namespace titan::train {

// Has each update compare the weights and moments that it reads with what the one before wrote (UpdateWatch), where the
// optimizer's kernel does that. Hashes what is not compared so (frozen weights, counters, another optimizer's state;
// all of it after a load) right after the update of the step before a checked one, and again right before the update of
// the checked step; in between, GatherCheck watches what the step writes. A difference means that a bit in memory has
// changed. All ranks learn of it after that update, and then return to the newest checkpoint, whose tensors are
// compared too if it was saved in between: the steps run again on the same data, as if nothing had happened. The run
// ends if there is no checkpoint, or if the memory of one rank has changed twice.
//
// This guest comes before those that judge or save a step, and as early as possible: what happens between the update
// and its after_step() is not watched.
class MemoryWatch : public StepGuest {
 public:
  // Answers whether the state that was just restored from the checkpoint of step `step` is good. Collective.
  using Accepts = std::function<bool(std::int64_t step)>;
  // Goes back to the newest checkpoint that is accepted, after step `step`, also in the data. Returns false, with the
  // reason in the log, if there is none. Collective.
  using RunAgain = std::function<bool(std::int64_t step, const Accepts& accepts)>;

  // All references must outlive this.
  struct Parts {
    MemoryCheck check;
    std::unique_ptr<UpdateWatch> updates;  // null: only the checked steps are watched
    std::unique_ptr<GatherCheck> gathers;  // null: only weights and optimizer state
    checkpoint::Checkpointer& checkpointer;
    metrics::EventLog& events;
    dist::ProcessGroup& world;
    const std::int64_t& finished_steps;  // live count of the run
    RunAgain run_again;
    std::int64_t freq;  // debug.memory_check_freq, above 0
  };
  explicit MemoryWatch(Parts parts) : parts_(std::move(parts)) {}

  void before_step() override;
  at::Tensor before_update(const StepView& step) override;
  Verdict after_step(const StepView& step) override;

 private:
  // Hashes as the update of a step left them.
  struct Noted {
    std::int64_t step;  // 0: before the first step
    MemoryHashes hashes;
    std::vector<bool> covered;  // by parameter of the optimizer: by UpdateWatch, and so not hashed
  };
  bool is_checked(std::int64_t step) const { return step % parts_.freq == 0; }
  void note(std::int64_t finished_steps);
  MemoryHashes hash_again();
  bool is_any(bool mine) const;
  bool accepts(std::int64_t step);
  Verdict handle(const StepView& step, const MemoryReport& report);

  Parts parts_;
  std::optional<Noted> noted_;       // if the next step is checked
  std::optional<MemoryHashes> now_;  // before the update of this step
  std::int64_t last_updated_ = -1;   // the step of the last update that this has seen
  std::vector<std::string> changed_in_step_;
  std::set<int> seen_;  // ranks whose memory has changed before, in this process
};

}  // namespace titan::train
