// Records the phases of the training thread (base/process/phase.h) as named ranges of a profile.
#pragma once

#include <memory>
#include <vector>

#include "base/process/phase.h"
#include "trace/named_range.h"

namespace titan::profile {

// Records while it exists. Make and destroy it between phases, or inside the same one, on the training thread.
class PhaseRanges : public PhaseListener {
 public:
  PhaseRanges() { set_phase_listener(this); }
  ~PhaseRanges() override { set_phase_listener(nullptr); }

  void on_enter(Phase phase) override;
  void on_leave(Phase phase) override;

 private:
  std::vector<std::unique_ptr<NamedRange>> open_;
};

}  // namespace titan::profile
