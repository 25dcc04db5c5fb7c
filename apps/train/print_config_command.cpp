#include "apps/train/print_config_command.h"

#include <string>

#include "apps/common/print_result.h"
#include "apps/train/checked_config.h"
#include "base/error.h"
#include "config/keys/print.h"

namespace titan {

int run_print_config(const config::CommandLine& command_line, const LaunchEnv& launch) {
  const CheckedConfig checked = check_to_print(command_line, launch);
  const std::string text = command_line.only_changed   ? config::changed_to_toml(checked.config)
                           : command_line.show_origins ? config::to_toml(checked.config, checked.origins)
                                                       : config::to_toml(checked.config);
  print_result(text);
  return kExitDone;
}

}  // namespace titan
