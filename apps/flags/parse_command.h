// Parses the arguments of a command.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace titan {

// Parses `args`, which follow the command's name. Returns an exit code if the command must not run (--help).
// Throws ConfigError for a wrong command line.
std::optional<int> parse_command(CLI::App& app, const std::vector<std::string>& args);

std::shared_ptr<CLI::App> make_app();

// Parses `args` into `flags`, using declare(app, flags), which every FOO_flags.h has.
template <typename Flags>
std::optional<int> parse_flags(Flags& flags, const std::vector<std::string>& args) {
  const auto app = make_app();
  declare(*app, flags);
  return parse_command(*app, args);
}

}  // namespace titan
