#include "apps/commands/init_command.h"

#include "apps/common/print_result.h"
#include "apps/flags/init_flags.h"

namespace titan {

int run_init_command(const std::vector<std::string>& args) {
  InitFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  print_result(models::starter_config(flags));
  return kExitDone;
}

}  // namespace titan
