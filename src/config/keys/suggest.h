// "Did you mean": what somebody may have had in mind who typed a name that is none.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace titan::config {

// The keys that an unknown name may stand for, likeliest first: those whose last part is the name's ("lr",
// "model.n_layers", "seq-len"), else the nearest key. Of several with one last part those that do something here.
std::vector<std::string> likely_keys(std::string_view name);

// "; did you mean --a or --b?", each candidate after `prefix`; empty when there is none.
std::string did_you_mean(std::span<const std::string> candidates, std::string_view prefix = "");

}  // namespace titan::config
