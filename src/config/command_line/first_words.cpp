#include "config/command_line/first_words.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/command_line/program.h"
#include "config/keys/suggest.h"

namespace titan::config {
namespace {

constexpr std::string_view kHelpOf = "--help=";

bool is_word_of(const Command& command, const std::string& word) { return std::ranges::count(command.words, word) > 0; }

}  // namespace

std::vector<std::string> spelled_out(std::vector<std::string> args) {
  if (args.empty()) return args;
  if (args[0] == "version") args[0] = "--version";
  if (args[0] == "help" || args[0] == "-h") args[0] = "--help";
  if (args[0].starts_with(kHelpOf)) args = {"--help", args[0].substr(kHelpOf.size())};
  if (args[0] != "--help" || args.size() < 2) return args;
  const Command* command = find_command(args[1]);
  if (!command) return args;
  if (args.size() > 2 && is_word_of(*command, args[2])) return {args[1], args[2], "--help"};
  return {args[1], "--help"};
}

void check_second_word(const std::vector<std::string>& args) {
  const Command* command = args.empty() ? nullptr : find_command(args[0]);
  if (!command || command->words.empty()) return;
  const std::string begin = "titan-train " + args[0];
  const std::string expected = join(command->words, ", ");
  if (args.size() < 2)
    throw ConfigError(begin + ": error: expected one of " + expected + " after it; " + begin + " --help says more");
  if (args[1].starts_with('-') || is_word_of(*command, args[1])) return;
  const auto near = nearest_name(args[1], command->words);
  throw ConfigError(begin + ": error: there is no \"" + args[1] + "\"" +
                    (near ? did_you_mean(std::vector{*near}, begin + " ") : "; expected one of " + expected));
}

std::string short_usage() {
  return "Usage: titan-train --config FILE [--section.key VALUE ...], or titan-train COMMAND\n"
         "  titan-train --config configs/debug.toml                       train on one rank\n"
         "  titan-train --nproc 2 --config configs/debug.toml             train on two ranks of this machine\n"
         "  titan-train --config configs/debug.toml --training.steps 20   train, with a key of the file changed\n"
         "Commands: " +
         join(command_names(), ", ") + ". titan-train --help says more.";
}

}  // namespace titan::config
