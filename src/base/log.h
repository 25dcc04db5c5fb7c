// The program's log: one spdlog logger, rank-aware. Lines look like TorchTitan's:
//   [titan] 2026-01-31 12:00:00,123 - root - INFO - message
#pragma once

#include <spdlog/spdlog.h>

#include <filesystem>
#include <string>

namespace titan {

// Sets up the logger. A rank that `is_shown` prints from level info, others from level warn; where that is rank 0 alone, a
// message that all ranks agree on is printed once. Ranks but 0 have their number in the line. Colors only on a terminal,
// and never when NO_COLOR is set. Calling it again replaces the setting. Not thread-safe against concurrent logging.
void init_log(int rank, int world_size, bool colors, bool is_shown);

// Sets up the log of a subcommand, whose standard output is for results: warnings and errors go to standard error as
// "<name>: warning: …".
void log_to_stderr(const std::string& name);

// From here on the rank's lines from level info on, and those since init_log(), go to `path`, too, without colors: that
// is more than a rank prints that is not shown. The folder is made where it is missing, and lines are added to a file that is
// there. A line is with the operating system when the call that logs it returns. Once, after init_log(), before a progress
// bar takes the terminal; does nothing without init_log(). Throws std::system_error naming the path.
void log_to_file(const std::filesystem::path& path);

// True on rank 0, which says what all ranks agree on, and in a process that has no log.
bool speaks_for_all();

// True when standard output is a terminal that accepts control sequences.
bool stdout_is_terminal();

}  // namespace titan
