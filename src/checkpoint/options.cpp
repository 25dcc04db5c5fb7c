#include "checkpoint/options.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace titan::checkpoint {

const std::vector<std::string>& state_groups() {
  static const std::vector<std::string> kGroups = {"model", "optimizer", "lr_scheduler", "dataloader", "train_state"};
  return kGroups;
}

void check_options(const CheckpointOptions& options) {
  if (options.interval < 1)
    throw ConfigError("checkpoint.interval is " + std::to_string(options.interval) + ", expected 1 or more");
  if (options.keep_latest_k < 0 || options.keep_latest_k == 1)
    throw ConfigError(
        "checkpoint.keep_latest_k is " + std::to_string(options.keep_latest_k) +
        ", expected 0 (keep all) or 2 and more: with 1 the only checkpoint would be removed for the next");
  if (options.load_step < -1)
    throw ConfigError("checkpoint.load_step is " + std::to_string(options.load_step) +
                      ", expected -1 (the newest) or a step");
  for (const std::string& name : options.exclude_from_loading) {
    if (std::ranges::count(state_groups(), name) > 0) continue;
    const auto near = nearest_name(name, state_groups());
    throw ConfigError("checkpoint.exclude_from_loading: unknown name \"" + name + "\"" +
                      (near ? ", did you mean \"" + *near + "\"?" : "") + " Names are " + join(state_groups(), ", "));
  }
  if (options.create_seed_checkpoint && !options.enable)
    throw ConfigError("checkpoint.create_seed_checkpoint needs checkpoint.enable = true");
}

}  // namespace titan::checkpoint
