#include "train/first_step.h"

#include <chrono>
#include <utility>

#include "train/run_folder.h"

namespace titan::train {

std::optional<RunEnd> FirstStep::after_step(const FinishedStep& /*step*/) {
  if (std::exchange(is_done_, true)) return std::nullopt;
  if (world_.rank() == 0) write_run_config(config_);
  world_.group().barrier();
  world_.set_timeout(std::chrono::seconds(config_.comm.train_timeout_seconds));
  return std::nullopt;
}

}  // namespace titan::train
