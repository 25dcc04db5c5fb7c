// The program's log: one spdlog logger, rank-aware. Lines look like TorchTitan's:
//   [titan] 2026-01-31 12:00:00,123 - root - INFO - message
#pragma once

#include <spdlog/spdlog.h>

#include <filesystem>
#include <string>

namespace titan {

// Sets up the logger. A rank with `is_shown` prints from level info, others from level warn; if
// only rank 0 is shown, a message that all ranks agree on is printed once. Ranks other than 0 have
// their number in the line. Colors are used only on a terminal, and never when NO_COLOR is set.
// Calling it again replaces the setting. Not thread-safe against concurrent logging.
void init_log(int rank, int world_size, bool colors, bool is_shown);

// Sets up the log of a subcommand, which prints its results to standard output: warnings and errors
// go to standard error as "<name>: warning: …".
void log_to_stderr(const std::string& name);

// Also writes this rank's lines to `path`, from level info on and without colors, even if the rank is not shown;
// includes the lines since init_log(). Creates the folder if needed, and appends to an existing file. When a
// logging call returns, its line has reached the operating system. Call once, after init_log() and before a
// progress bar takes the terminal; without init_log() it does nothing. Throws std::system_error naming the path.
void log_to_file(const std::filesystem::path& path);

// True on rank 0, which prints what all ranks agree on, and in a process without a log.
bool speaks_for_all();

// True when standard output is a terminal that accepts control sequences.
bool stdout_is_terminal();

}  // namespace titan
