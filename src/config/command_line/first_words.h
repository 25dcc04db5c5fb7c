// What people type first who do not know the command line yet, in the words that it knows.
#pragma once

#include <string>
#include <vector>

namespace titan::config {

// `args` (without the program's name), with "help", "help sweep", "--help sweep" and "version" as the flags and
// commands that they mean. Everything else stays as it is.
std::vector<std::string> spelled_out(std::vector<std::string> args);

// For a command that goes by a second word (tokenizer train): throws ConfigError when `args` has none or another one.
void check_second_word(const std::vector<std::string>& args);

// How to start the program, in a few lines with examples: for who gives it no arguments at all.
std::string short_usage();

}  // namespace titan::config
