// What subcommands share: standard output is for results, standard error for messages.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace titan {

// All of it. Throws Error when it cannot be read.
std::string read_standard_input();

// Parses `args`. Gives an exit code when the command has nothing more to do (--help). Throws ConfigError for a wrong
// command line.
std::optional<int> parse_command(CLI::App& app, const std::vector<std::string>& args);

}  // namespace titan
