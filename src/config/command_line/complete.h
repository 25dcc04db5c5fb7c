// Completes command lines for shells. The scripts of --completion ask `titan-train --complete SHELL WORD...`.
#pragma once

#include <span>
#include <string>

namespace titan::config {

// Returns the answer to a shell ("bash", "zsh" or "fish") whose command line has `words` after the program's name. The
// last word is being typed and may be empty. The first line of the answer is
//   words    the candidates follow, one per line, with a tab and their description
//   files    the shell completes file names
//   nothing  any value may follow
// bash passes "--flag=value" as three words and completes the last one. zsh passes one word and completes the part
// after '='. fish passes one word, and candidates repeat its "--flag=".
std::string complete(const std::string& shell, std::span<const std::string> words);

// Returns the flag that sets a boolean key to false: "--checkpoint.enable" -> "--checkpoint.no-enable".
std::string negated_flag(const std::string& flag);

// Returns the script that registers the completion for "bash", "zsh" or "fish". It asks this program, by its path.
std::string completion_script(const std::string& shell);

}  // namespace titan::config
