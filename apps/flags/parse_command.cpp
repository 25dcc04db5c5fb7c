#include "apps/flags/parse_command.h"

#include <CLI/CLI.hpp>

#include "apps/common/print_result.h"
#include "base/error.h"
#include "base/text.h"

namespace titan {

std::shared_ptr<CLI::App> make_app() { return std::make_shared<CLI::App>(); }

std::optional<int> parse_command(CLI::App& app, const std::vector<std::string>& args) {
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    print_result(app.help());
    return kExitDone;
  } catch (const CLI::ExtrasError&) {
    const auto extras = app.remaining(true);  // the message of CLI11 has them backwards
    throw ConfigError(app.get_name() + ": error: The following " +
                      (extras.size() == 1 ? "argument was" : "arguments were") + " not expected: " + join(extras, " ") +
                      "; --help lists what there is");
  } catch (const CLI::ParseError& error) {
    throw ConfigError(app.get_name() + ": error: " + error.what() + "; --help lists what there is");
  }
}

}  // namespace titan
