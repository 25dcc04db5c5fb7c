#include "profile/phase_ranges.h"

namespace titan::profile {

void PhaseRanges::on_enter(Phase phase) {
  open_.push_back(std::make_unique<NamedRange>([phase] { return std::string(name_of(phase)); }));
}

void PhaseRanges::on_leave(Phase /*phase*/) {
  if (!open_.empty()) open_.pop_back();  // otherwise it began before this listened
}

}  // namespace titan::profile
