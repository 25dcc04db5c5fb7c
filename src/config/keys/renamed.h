// Names that TorchTitan no longer uses: a file written for an older version gets the new name instead of a guess.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace titan::config {

// Returns what to do about a key ("training.batch_size") or a table ("float8") that was renamed or
// removed; nullopt for any other name.
std::optional<std::string> renamed_hint(std::string_view name);

// Returns the name in use today, empty if it was removed; nullopt for a name that never changed.
std::optional<std::string> new_name(std::string_view name);

}  // namespace titan::config
