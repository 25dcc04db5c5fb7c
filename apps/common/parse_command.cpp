#include "apps/common/parse_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/common/print_result.h"
#include "base/error.h"

namespace titan {

std::string read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof(buffer), stdin)) text.append(buffer, count);
  if (std::ferror(stdin)) throw Error("standard input cannot be read", kExitFailed);
  return text;
}

std::optional<int> parse_command(CLI::App& app, const std::vector<std::string>& args) {
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    print_result(app.help());
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(app.get_name() + ": error: " + error.what() + "; --help lists what there is");
  }
}

}  // namespace titan
