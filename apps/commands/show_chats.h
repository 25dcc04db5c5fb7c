// Shows conversations as training sees them: `titan-train tokenize --dataset chat --show N`.
#pragma once

#include "apps/flags/tokenize_flags.h"

namespace titan {

// Prints the first flags.show conversations. What is trained has a color, or brackets if the output is not a terminal.
// With flags.json, prints a JSON object a line. Returns the exit code. Throws DataError, ConfigError.
int show_chats(const TokenizeFlags& flags);

}  // namespace titan
