// Reads configurations that come through a pipe: `--config -`, `--config /dev/stdin`, `--config <(command)`.
#pragma once

#include <optional>
#include <string>

namespace titan::config {

constexpr const char* kStandardInput = "-";

// Returns the descriptor to read `path` from: that of standard input for "-", and that of a pipe or terminal which this
// process has open and `path` names, as the shell's <(command) does. Returns nullopt for a file, which is opened by its
// name. Throws ConfigError for a named pipe, since a configuration is read more than once.
std::optional<int> descriptor_of(const std::string& path);

// Returns all that the descriptor has. A pipe, which cannot be read twice, is replaced by a file in memory, so that
// this process and the ranks it starts can read it again. Throws ConfigError, naming `path`, if it cannot be read, and
// in a rank of another launcher, because not all of its ranks receive the text.
std::string read_descriptor(int fd, const std::string& path);

}  // namespace titan::config
