// main() of the program: reads the command line, handles what needs no torch, and calls the engine for the rest.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "apps/command_table.h"
#include "apps/commands/init_command.h"
#include "apps/commands/supervise_command.h"
#include "apps/commands/sweep_command.h"
#include "apps/common/print_result.h"
#include "apps/engine.h"
#include "apps/flags/eval_flags.h"
#include "apps/flags/generate_flags.h"
#include "apps/installed_torch.h"
#include "apps/launch/launch_local.h"
#include "apps/launch/supervisor.h"
#include "apps/launch/world_size.h"
#include "apps/runs/compare_command.h"
#include "apps/runs/plot_command.h"
#include "apps/runs/report_command.h"
#include "apps/schedule/schedule_command.h"
#include "base/env.h"
#include "base/error.h"
#include "base/process/exit_code.h"
#include "base/process/signal.h"
#include "base/process/speaks.h"
#include "config/command_line/command_line.h"
#include "config/command_line/complete.h"
#include "config/command_line/first_words.h"
#include "config/command_line/help.h"
#include "config/command_line/program.h"
#include "config/command_line/variables.h"
#include "config/keys/print.h"
#include "config/load.h"

namespace titan {
namespace {

using Arguments = std::vector<std::string>;

// Raises the limit of open files: data in many files and checkpoints of many ranks need more than the usual 1,024.
void raise_open_files_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  constexpr rlim_t kEnough = 65'536;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kEnough));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_subcommand(const std::string& word) { return config::find_command(word) != nullptr; }

int print(const std::string& text) {
  print_result(text);
  return kExitDone;
}

// Checks the TITAN_ variables for commands, which have no log. A run reports them in its log.
void check_environment_of_command() {
  std::vector<std::string> errors, warnings;
  config::check_variables(config::titan_variables(), errors, warnings);
  config::throw_if_wrong(errors);
  for (const auto& warning : warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
}

// Reports mistakes in the configuration before torch is loaded and before ranks are started.
void check_config(const config::CommandLine& command_line) {
  const LaunchEnv launch = detect_launch();
  if (speaks_for_job(launch)) config::load_job_config(command_line, planned_world_size(command_line, launch));
}

int start_ranks(const Arguments& args, std::int64_t nproc) {
  use_installed_torch();  // once for all ranks, which inherit the environment
  install_signal_handlers();
  return launch_local(arguments_of_ranks(args), nproc).exit_code;
}

// Trains on ranks of this machine, which are started again after a failure as often as --max-restarts says.
int train_locally(const Arguments& args, const config::CommandLine& command_line) {
  config::throw_if_wrong(command_line.errors);
  if (!command_line.oversubscribe) check_room_for(*command_line.nproc);
  if (command_line.max_restarts.value_or(0) == 0) {
    check_config(command_line);
    return start_ranks(args, *command_line.nproc);
  }
  const auto loaded = config::load_job_config(command_line, *command_line.nproc);
  try {
    check_restarts(command_line, loaded.config);
  } catch (const ConfigError& error) {
    throw ConfigError(config::with_location(error, loaded.origins));
  }
  use_installed_torch();  // once for all ranks, which inherit the environment
  install_signal_handlers();
  return supervise_local(args, command_line, loaded.config);
}

// Runs doctor. Its arguments may include keys, as in the command line of the run to check.
int run_doctor_command(const Arguments& args) {
  const auto command_line = config::parse_command_line(Arguments(args.begin() + 1, args.end()));
  if (!command_line.nproc || command_line.help) return run_engine(args);
  if (!command_line.oversubscribe) check_room_for(*command_line.nproc);
  return start_ranks(args, *command_line.nproc);
}

// Runs a command that may have ranks of its own (--nproc).
template <typename Flags>
int run_over_ranks(const Arguments& args) {
  Flags flags;
  if (const auto code = parse_flags(flags, Arguments(args.begin() + 1, args.end()))) return *code;
  if (!flags.nproc) return run_engine(args);
  if (!flags.oversubscribe) check_room_for(*flags.nproc);
  return start_ranks(args, *flags.nproc);
}

int run_command(const Arguments& args) {
  config::check_second_word(args);
  check_environment_of_command();
  const Arguments rest(args.begin() + 1, args.end());
  if (args[0] == "init") return run_init_command(rest);
  if (args[0] == "doctor") return run_doctor_command(args);
  if (args[0] == "eval") return run_over_ranks<EvalFlags>(args);
  if (args[0] == "generate") return run_over_ranks<GenerateFlags>(args);
  if (args[0] == "report") return run_report_command(rest);
  if (args[0] == "plot") return run_plot_command(rest);
  if (args[0] == "compare") return run_compare_command(rest);
  if (args[0] == "schedule") return run_schedule_command(rest);
  if (args[0] == "supervise") return run_supervise_command(rest);
  if (args[0] != "sweep") return run_engine(args);
  install_signal_handlers();
  return run_sweep_command(rest);
}

// True if there are no arguments and no TITAN_ variable names a key.
bool is_nothing_given(const Arguments& args) {
  return args.empty() && std::ranges::none_of(config::titan_variables(),
                                              [](const auto& item) { return config::names_a_key(item.first); });
}

// Runs the program. A signal that arrives while the engine is loaded ends the process: there is nothing yet to stop
// cleanly.
int run(const Arguments& args) {
  if (is_nothing_given(args))
    return report_once(speaks_for_job(detect_launch()), []() -> int { throw ConfigError(config::short_usage()); });
  if (!args.empty() && is_subcommand(args[0])) return run_command(args);
  if (args.size() > 1 && args[0] == "--complete") return print(config::complete(args[1], std::span(args).subspan(2)));
  const auto command_line = config::parse_command_line(args);
  if (command_line.help)
    return print(command_line.help_topic ? config::help_text(*command_line.help_topic) : config::help_text());
  if (command_line.version) return run_engine(args);
  if (command_line.print_docs) return print(config::docs_text());
  if (command_line.completion) return print(config::completion_script(*command_line.completion));
  if (command_line.nproc && !command_line.dry_run && !command_line.print_config)
    return train_locally(args, command_line);
  check_config(command_line);
  return run_engine(args);
}

}  // namespace
}  // namespace titan

int main(int argc, char** argv) {
  titan::describe_program();
  const titan::Arguments args = titan::config::spelled_out({argv + 1, argv + argc});
  // Ignored from the start (commands without handlers write files, too): a write beyond the limit of a file's size then
  // fails with an error that names the file, instead of killing the process.
  std::signal(SIGXFSZ, SIG_IGN);
  titan::raise_open_files_limit();
  const bool is_command = !args.empty() && titan::is_subcommand(args[0]);
  const int exit_code = titan::exit_code_of([&] { return titan::run(args); }, /*may_be_rank=*/!is_command);
  // Threads of torch and Gloo may still run; nothing that they do matters any more.
  std::fflush(nullptr);
  std::cout.flush();
  _exit(exit_code);
}
