// Interface for everything that runs around a step: logging, validation, checkpoints, watches. run_parts.cpp has the
// list of guests; a new one is a file and a line there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/value.h"
#include "train/step/step_data.h"

namespace titan::train {

enum class RunEnd {
  kCompleted,       // also if nothing was left to do
  kStopped,         // by a signal, early; a checkpoint holds the state
  kStoppedUnsaved,  // the same with checkpoints off
  kDiverged,        // gradients were NaN or infinite (training.on_nan)
  kDrifted,         // ranks hold different copies of what must be equal
};

// Says how training continues after a step.
class Verdict {
 public:
  static Verdict go_on() { return {Kind::kGoOn, RunEnd::kCompleted}; }
  // The guest has restored an earlier step, and training continues from there.
  static Verdict rolled_back() { return {Kind::kRolledBack, RunEnd::kCompleted}; }
  static Verdict ends(RunEnd end) { return {Kind::kEnds, end}; }

  bool goes_on() const { return kind_ == Kind::kGoOn; }
  bool ends() const { return kind_ == Kind::kEnds; }
  RunEnd end() const { return end_; }  // if ends()
  bool operator==(const Verdict&) const = default;

 private:
  enum class Kind { kGoOn, kRolledBack, kEnds };
  Verdict(Kind kind, RunEnd end) : kind_(kind), end_(end) {}

  Kind kind_;
  RunEnd end_;
};

// A step as its guests see it. Before the update, `output` has the loss and the norm of the gradients.
struct StepView {
  std::int64_t number;  // 1-based
  const StepInput& input;
  const StepOutput& output;
};

// Every rank has the same guests and calls them in the same order, so these functions may be collective. An exception
// ends the run.
class StepGuest {
 public:
  virtual ~StepGuest() = default;

  // Called before the step's data is fetched.
  virtual void before_step() {}

  // Called before the optimizer, which may scale gradients in place. Returns 1 if the step must change neither weights
  // nor optimizer state, else 0: float32 0-d on the device of the norm, the same on every rank; undefined means 0. Must
  // not read values from a device without need.
  virtual at::Tensor before_update(const StepView& /*step*/) { return {}; }

  // Called after the optimizer. Guests further down the list do not see a step after which training does not simply go
  // on. All ranks must return the same.
  virtual Verdict after_step(const StepView& /*step*/) { return Verdict::go_on(); }

  // Called once after the last step, unless training ends by an exception.
  virtual void finish(RunEnd /*end*/, std::int64_t /*finished_steps*/) {}

  // State that checkpoints hold under a key of the guest's own, so that a resumed run continues unchanged. Older
  // checkpoints lack the key, and other programs do not read it. Returns "titan.<name>"; empty if there is no state.
  virtual std::string saved_key() const { return ""; }
  // Returns the same on every rank. May wait for the device.
  virtual Value saved() const { return {}; }
  // `saved` is null if the checkpoint has no such value: begin anew. Throws CheckpointError for a value that saved()
  // did not make.
  virtual void restore(const Value* /*saved*/) {}
};

// The guests of a run, in the order in which they see a step.
using StepGuests = std::vector<std::unique_ptr<StepGuest>>;

}  // namespace titan::train
