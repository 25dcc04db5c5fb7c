// The program: reads the command line, picks what to do, and turns every error into one line and one exit code.
#include <c10/util/Logging.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apps/convert_command.h"
#include "apps/inspect_command.h"
#include "apps/launch_local.h"
#include "apps/run_train.h"
#include "apps/sweep_command.h"
#include "apps/tokenize_command.h"
#include "apps/tokenizer_command.h"
#include "apps/version.h"
#include "base/env.h"
#include "base/error.h"
#include "base/signal.h"
#include "config/command_line.h"
#include "config/print.h"
#include "kernels/host_arena.h"

namespace titan {
namespace {

using Arguments = std::vector<std::string>;

// Those of config::subcommands(); each gets what follows its name.
const std::map<std::string_view, int (*)(const Arguments&)> kSubcommands = {{"tokenizer", run_tokenizer_command},
                                                                            {"tokenize", run_tokenize},
                                                                            {"sweep", run_sweep_command},
                                                                            {"inspect", run_inspect},
                                                                            {"convert", run_convert}};

int print(const std::string& text) {
  std::cout << text;
  return kExitDone;
}

int run(const Arguments& args) {
  const auto command = args.empty() ? kSubcommands.end() : kSubcommands.find(args[0]);
  if (command != kSubcommands.end()) return command->second({args.begin() + 1, args.end()});
  const auto command_line = config::parse_command_line(args);
  if (command_line.help)
    return print(command_line.help_topic ? config::help_text(*command_line.help_topic) : config::help_text());
  if (command_line.version) return print(version_text());
  if (command_line.print_docs) return print(config::docs_text());
  if (command_line.completion) return print(config::completion_script(*command_line.completion));
  if (command_line.nproc && !command_line.dry_run && !command_line.print_config) {
    config::throw_if_wrong(command_line.errors);
    if (!command_line.oversubscribe) check_room_for(*command_line.nproc);
    return launch_local(arguments_of_ranks(args), *command_line.nproc);
  }
  return run_train(command_line);
}

// Messages about input stand alone, as a compiler's do. What fails later, fails on one rank, which names itself.
void print_error(const Error& error) {
  const auto rank =
      get_env("RANK").value_or(get_env("OMPI_COMM_WORLD_RANK").value_or(get_env("SLURM_PROCID").value_or("0")));
  if (error.exit_code() == kExitBadInput) {
    std::cerr << error.what() << std::endl;
  } else {
    std::cerr << "titan-train: rank " << rank << ": " << error.what() << std::endl;
  }
}

}  // namespace
}  // namespace titan

int main(int argc, char** argv) {
  using namespace titan;
  int exit_code = kExitFailed;
  try {
    // c10d warns with a backtrace when a peer's connection closes; what that means is said once, by who finds out.
    setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*overwrite=*/0);
    c10::initLogging();
    kernels::install_host_arena();
    install_signal_handlers();
    exit_code = run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const Error& error) {
    print_error(error);
    exit_code = error.exit_code();
  } catch (const std::exception& error) {
    print_error(Error(std::string(error.what()), kExitFailed));
  }
  // Threads of torch and Gloo may still run; nothing that they do matters any more.
  std::fflush(nullptr);
  std::cout.flush();
  _exit(exit_code);
}
