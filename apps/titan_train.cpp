// The program: reads the command line, picks what to do, and turns every error into one line and one exit code.
#include <ATen/Version.h>
#include <c10/util/Logging.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "apps/launch_local.h"
#include "apps/run_train.h"
#include "apps/sweep_command.h"
#include "apps/tokenize_command.h"
#include "apps/tokenizer_command.h"
#include "base/env.h"
#include "base/error.h"
#include "base/signal.h"
#include "config/command_line.h"
#include "config/print.h"
#include "kernels/host_arena.h"

namespace titan {
namespace {

int run(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "tokenizer") return run_tokenizer_command({args.begin() + 1, args.end()});
  if (!args.empty() && args[0] == "tokenize") return run_tokenize({args.begin() + 1, args.end()});
  if (!args.empty() && args[0] == "sweep") return run_sweep_command({args.begin() + 1, args.end()});
  const auto command_line = config::parse_command_line(args);
  if (command_line.help) {
    std::cout << config::help_text();
    return kExitDone;
  }
  if (command_line.version) {
    std::cout << "titan-train " TITAN_VERSION " (" TITAN_REVISION ")\n" << at::show_config() << "\n";
    return kExitDone;
  }
  if (command_line.nproc && !command_line.dry_run && !command_line.print_config) {
    config::throw_if_wrong(command_line.errors);
    return launch_local(without_nproc(args), *command_line.nproc);
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
