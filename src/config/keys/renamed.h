// Names that TorchTitan gave up: a file written for an older version gets the new name instead of a guess.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace titan::config {

// For a key ("training.batch_size") or a table ("float8") that was renamed or removed: what to do about it. Nothing for
// any other name.
std::optional<std::string> renamed_hint(std::string_view name);

// The name in use today; empty for one that was removed. Nothing for a name that never changed.
std::optional<std::string> new_name(std::string_view name);

}  // namespace titan::config
