#include "apps/engine.h"

#include <c10/util/Logging.h>

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apps/command_table.h"
#include "apps/commands/convert_command.h"
#include "apps/commands/eval_command.h"
#include "apps/commands/generate_command.h"
#include "apps/commands/inspect_command.h"
#include "apps/commands/tokenize_command.h"
#include "apps/commands/tokenizer_command.h"
#include "apps/common/print_result.h"
#include "apps/common/version.h"
#include "apps/doctor/doctor_command.h"
#include "apps/train/dry_run_command.h"
#include "apps/train/print_config_command.h"
#include "apps/train/train_command.h"
#include "base/env.h"
#include "base/error.h"
#include "base/process/exit_code.h"
#include "base/process/signal.h"
#include "base/process/speaks.h"
#include "base/stack/crash.h"
#include "config/command_line/command_line.h"
#include "kernels/memory/host_arena.h"
#include "library/short_torch_errors.h"

namespace titan {
namespace {

using Arguments = std::vector<std::string>;

// Commands that need torch. Each gets the words after its name.
const std::map<std::string_view, int (*)(const Arguments&)> kSubcommands = {{"tokenizer", run_tokenizer_command},
                                                                            {"tokenize", run_tokenize},
                                                                            {"inspect", run_inspect},
                                                                            {"convert", run_convert},
                                                                            {"doctor", run_doctor},
                                                                            {"eval", run_eval},
                                                                            {"generate", run_generate}};

// Runs the mode that the flags ask for: print the configuration, predict a run (--dry-run), or train.
int run_mode(const config::CommandLine& command_line) {
  const LaunchEnv launch = detect_launch();
  if (launch.launcher != Launcher::kAlone) install_crash_handlers(static_cast<int>(launch.rank));
  end_at_once_on_signal(speaks_for_job(launch) ? "titan-train: asked to stop before the first step; nothing was saved\n"
                                               : "");
  if (command_line.print_config) return run_print_config(command_line, launch);
  if (command_line.dry_run) return run_dry(command_line, launch);
  return run_train(command_line, launch);
}

int run(const Arguments& args) {
  const auto command = args.empty() ? kSubcommands.end() : kSubcommands.find(args[0]);
  if (command != kSubcommands.end()) {
    if (command->first != "tokenize") end_at_once_on_signal("");  // the others have no work to resume later
    return command->second({args.begin() + 1, args.end()});
  }
  const auto command_line = config::parse_command_line(args);
  if (!command_line.version) return run_mode(command_line);
  print_result(version_text());
  return kExitDone;
}

}  // namespace
}  // namespace titan

const char* titan_engine_build() { return titan::build_name(); }

int titan_run_engine(int argc, char** argv) {
  using namespace titan;
  describe_program();
  const bool is_command = argc > 1 && kSubcommands.contains(argv[1]);
  const auto body = [&] {
    // c10d warns with a backtrace when a peer's connection closes. The rank that finds the failure reports it once.
    setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*overwrite=*/0);
    c10::initLogging();
    kernels::install_host_arena();
    install_crash_handlers(/*rank=*/-1);
    install_signal_handlers();
    return with_short_torch_errors([&] { return run(Arguments(argv + 1, argv + argc)); });
  };
  return exit_code_of(body, /*may_be_rank=*/!is_command);
}
