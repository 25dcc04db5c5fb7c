#include "apps/commands/sweep_command.h"

#include "apps/flags/sweep_flags.h"

namespace titan {

int run_sweep_command(const std::vector<std::string>& args) {
  SweepFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  if (flags.report) return sweep::remake_report(*flags.report, flags.objective);
  flags.options.file = flags.file;
  if (!flags.words.grid.empty()) {
    flags.words.objective = flags.objective;
    const sweep::SweepFile made = sweep_file_of(flags.words);
    flags.options.file = made.path;
    flags.options.text = made.text;
  }
  return sweep::run_sweep(flags.options);
}

}  // namespace titan
