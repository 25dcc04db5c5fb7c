// Translates words that beginners type ("help", "version") into flags and commands.
#pragma once

#include <string>
#include <vector>

namespace titan::config {

// Returns `args` (without the program's name) with "help", "help sweep", "--help sweep" and "version" replaced by the
// flags and commands that they mean. All other words are unchanged.
std::vector<std::string> spelled_out(std::vector<std::string> args);

// Throws ConfigError if the command needs a second word (tokenizer train), and `args` has none or an unknown one.
void check_second_word(const std::vector<std::string>& args);

// Returns a few lines with examples of how to start the program, printed if it is started without arguments.
std::string short_usage();

}  // namespace titan::config
