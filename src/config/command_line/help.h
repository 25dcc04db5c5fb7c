// Describes everything that can be configured, as text for a terminal and for docs/config.md.
#pragma once

#include <string>

namespace titan::config {

// Returns the text of --help: how to start the program, commands, flags and the tables of keys, on one screen.
std::string help_text();

// Returns the help about `topic`: "all" (every key by table, with its default, rule and doc), a table, a key, or a word
// to find in names and docs. A search skips keys without effect here if it finds anything else. Throws ConfigError that
// names the nearest topic if nothing is found.
std::string help_text(const std::string& topic);

// Returns the content of docs/config.md.
std::string docs_text();

}  // namespace titan::config
