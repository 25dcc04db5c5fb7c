// A trial's process: started apart from the terminal, tied to the life of this one.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace titan::sweep {

struct Launch {
  std::vector<std::string> words;                  // the program (looked for in PATH) and its arguments
  std::map<std::string, std::string> environment;  // on top of this process's own
  std::vector<int> cores;                          // that it may run on; empty: all
  std::filesystem::path log;                       // standard output and error are appended to it
  std::filesystem::path lock;                      // held by it and all that it starts
};

// How a process ended.
struct Exit {
  int code = 0;    // exit code; 128 + signal when a signal ended it
  int signal = 0;  // 0: none did
};

// Starts nothing and gives nothing when the lock is held: processes of an earlier start are not quite gone.
//
// The process has no part in the terminal's signals: it belongs to a group of its own, gets what signal() sends, and is
// killed when this process ends, however that happens. Variables that override keys of a job (TITAN_SECTION__KEY) and
// those by which launchers number ranks are taken away. Call from the main thread, which must live as long as the
// process. Throws std::system_error.
std::optional<pid_t> start_process(const Launch& launch);

// Nothing while it runs.
std::optional<Exit> poll_process(pid_t pid);

// To the process alone, which hands it on, or to all of its group.
void signal_process(pid_t pid, int signal, bool whole_group);

// The last line of a log that tells of an error, else its last line; shortened to `max_length` bytes.
std::string last_error_line(const std::filesystem::path& log, std::size_t max_length = 300);

}  // namespace titan::sweep
