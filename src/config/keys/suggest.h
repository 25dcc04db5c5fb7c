// Suggests valid names close to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace titan::config {

// Returns the keys that an unknown name may mean, likeliest first: keys with the same last part
// ("lr", "model.n_layers", "seq-len"), else the nearest key. Of several with the same last part,
// only the supported ones, if any.
std::vector<std::string> likely_keys(std::string_view name);

// "; did you mean --a or --b?", with `prefix` before each candidate; empty if there is none.
std::string did_you_mean(std::span<const std::string> candidates, std::string_view prefix = "");

}  // namespace titan::config
