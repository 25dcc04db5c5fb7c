#include "apps/commands/supervise_command.h"

#include "apps/flags/supervise_flags.h"
#include "apps/launch/other_launcher.h"
#include "base/process/signal.h"

namespace titan {

int run_supervise_command(const std::vector<std::string>& args) {
  SuperviseFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  install_signal_handlers();
  return supervise_command(flags.command, flags.max_restarts);
}

}  // namespace titan
