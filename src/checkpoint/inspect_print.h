// An inspection as text for people and as JSON for programs.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/inspect.h"

namespace titan::checkpoint {

// Keys whose names match: a pattern with *, ? or [ as the shell has them, anything else as a part of the name.
std::vector<KeyInfo> matching_keys(const std::vector<KeyInfo>& keys, const std::string& pattern);

// Head, sums by group, keys, files. Keys that differ in one number alone ("layers.3.") and are alike otherwise share a
// line, unless `pattern` (see matching_keys()) asks for some: those stand one by one.
std::string inspection_text(const Inspection& inspection, const std::string& pattern);
std::string run_text(const std::filesystem::path& folder, const std::vector<StepInfo>& steps);

// `faults`: of a verification, or null. One JSON value and a newline.
std::string inspection_json(const Inspection& inspection, const std::string& pattern,
                            const std::vector<std::string>* faults);
std::string run_json(const std::filesystem::path& folder, const std::vector<StepInfo>& steps,
                     const std::vector<std::string>* faults);

}  // namespace titan::checkpoint
