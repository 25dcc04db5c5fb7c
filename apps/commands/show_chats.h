// Shows conversations as training sees them: `titan-train tokenize --dataset chat --show N`.
#pragma once

#include "apps/flags/tokenize_flags.h"

namespace titan {

// Prints the first flags.show conversations, with what is trained in color, or in brackets if the output is not a terminal;
// with flags.json, a JSON object a line. Returns the exit code. Throws DataError, ConfigError.
int show_chats(const TokenizeFlags& flags);

}  // namespace titan
