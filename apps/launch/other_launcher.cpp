#include "apps/launch/other_launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "apps/launch/launch_local.h"
#include "apps/launch/supervisor.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/process/signal.h"
#include "base/text.h"
#include "config/command_line/command_line.h"
#include "config/command_line/program.h"
#include "config/load.h"
#include "config/paths.h"

namespace titan {
namespace {

using Words = std::vector<std::string>;

// Starts the command. Returns its process id, or -1 with errno set if the system refuses the program.
pid_t start(Words command) {
  std::vector<char*> argv;
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  int pipe[2];  // gets the reason if the program cannot be started, and closes without one if it can
  if (::pipe2(pipe, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // a launcher that gets it ends its ranks
    if (::getppid() == parent) ::execvp(argv[0], argv.data());
    const int reason = errno;
    [[maybe_unused]] const auto written = ::write(pipe[1], &reason, sizeof reason);
    ::_exit(kExitFailed);
  }
  const int fork_error = errno;
  ::close(pipe[1]);
  int reason = 0;
  const auto size = pid > 0 ? ::read(pipe[0], &reason, sizeof reason) : 0;
  ::close(pipe[0]);
  if (pid < 0) throw std::system_error(fork_error, std::generic_category(), "cannot start " + command[0]);
  if (size == 0) return pid;
  ::waitpid(pid, nullptr, 0);
  errno = reason;
  return -1;
}

// Returns the place of the word that starts titan-train.
Words::const_iterator find_program(const Words& command) {
  const auto found = std::ranges::find_if(
      command, [](const auto& word) { return std::filesystem::path(word).filename() == "titan-train"; });
  if (found == command.end())
    throw ConfigError(
        "supervise: no word of the command is titan-train, and its arguments say where the run saves; found: " +
        join(command, " ") +
        "\n  expected for example: titan-train supervise -- mpirun -n 8 titan-train --config job.toml");
  return found;
}

config::JobConfig load(const Words& args, std::int64_t max_restarts) {
  if (!args.empty() && config::find_command(args[0]) != nullptr)
    throw ConfigError("supervise: the command starts `titan-train " + args[0] + "`; expected a training run");
  const auto command_line = config::parse_command_line(args);
  config::throw_if_wrong(command_line.errors);
  if (command_line.max_restarts.value_or(0) > 0)
    throw ConfigError("supervise: the command has --max-restarts itself: leave one of the two out");
  const auto loaded = config::load_job_config(command_line, command_line.nproc);
  try {
    check_saves(max_restarts, loaded.config);
  } catch (const ConfigError& error) {
    throw ConfigError(config::with_location(error, loaded.origins));
  }
  return loaded.config;
}

// Runs the command to its end with the terminal and the environment of this process. Passes on the first signal that
// asks to stop. A command that a signal ended has exit code 128 + signal.
RanksEnd run_command(const Words& command) {
  const pid_t pid = start(command);
  if (pid < 0) throw ConfigError("supervise: cannot start " + command[0] + ": " + std::strerror(errno));
  RanksEnd end;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) != pid) {
    const auto signal = stop_requested();
    if (signal && !end.stop_signal) {
      ::kill(pid, *signal);
      end.stop_signal = signal;
    }
    ::poll(nullptr, 0, /*timeout=*/10);
  }
  end.stop_signal = stop_requested();
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  end.unix_time = unix_now();
  return end;
}

}  // namespace

int supervise_command(const Words& command, std::int64_t max_restarts) {
  if (const auto env = detect_launch(); env.launcher != Launcher::kAlone)
    throw ConfigError(std::string("supervise starts a launcher, and ") + to_string(env.launcher) +
                      " has started this process as a rank: start `titan-train supervise` once, in front of it");
  const auto program = find_program(command);
  const Words before(command.begin(), program + 1), args(program + 1, command.end());
  const config::JobConfig config = load(args, max_restarts);
  Supervised run{.ranks = 0,
                 .limits = {.max_restarts = max_restarts},
                 .folder = config.job.dump_folder,
                 .checkpoints = config::checkpoint_folder(config),
                 .has_memory_copies = config.checkpoint.memory_interval > 0,
                 .overwrites = std::ranges::find(args, "--overwrite") != args.end()};
  run.run = [&](std::int64_t, std::int64_t start, bool may_overwrite) {
    if (start == 1) return run_command(command);
    Words words = before;
    std::ranges::copy(arguments_of_restart(args, may_overwrite), std::back_inserter(words));
    return run_command(words);
  };
  return supervise(run);
}

}  // namespace titan
