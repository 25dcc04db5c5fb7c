// Starts a trial's process, detached from the terminal but killed when this process ends.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace titan::sweep {

struct Launch {
  std::vector<std::string> words;                  // the program (searched in PATH) and its arguments
  std::map<std::string, std::string> environment;  // added to this process's own
  std::vector<int> cores;                          // allowed cores; empty: all
  std::filesystem::path log;                       // standard output and error are appended to it
  std::filesystem::path lock;                      // held by the process and everything it starts
};

// Result of a process.
struct Exit {
  int code = 0;    // exit code; 128 + signal if a signal ended it
  int signal = 0;  // 0 if none
};

// Starts the process. Returns nullopt and starts nothing if the lock is held: processes of an
// earlier start are still ending.
// The terminal's signals do not reach the process: it has its own group, receives what
// signal_process() sends, and is killed when this process ends for any reason. Removes variables
// that override keys of a job (TITAN_SECTION__KEY) and launchers' rank variables. Call from the
// main thread, which must live as long as the process. Throws std::system_error.
std::optional<pid_t> start_process(const Launch& launch);

// Returns nullopt while it runs.
std::optional<Exit> poll_process(pid_t pid);

// Sends a signal to the process, which forwards it, or to its whole group.
void signal_process(pid_t pid, int signal, bool whole_group);

// Returns the last line of a log that mentions an error, else its last line; shortened to `max_length` bytes.
std::string last_error_line(const std::filesystem::path& log, std::size_t max_length = 300);

}  // namespace titan::sweep
