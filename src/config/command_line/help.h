// All that can be configured, as text: for a terminal and for docs/config.md.
#pragma once

#include <string>

namespace titan::config {

// For --help: how to start the program, its commands and flags, and the tables of keys by name, on one screen.
std::string help_text();

// `topic` is "all" (every key by table, with its default, its rule and what it does), a table, a key, or a word to look
// for in names and texts. Keys that do nothing here are left out where others are found. Throws ConfigError, naming the
// nearest, when there is no such thing.
std::string help_text(const std::string& topic);

// docs/config.md.
std::string docs_text();

}  // namespace titan::config
