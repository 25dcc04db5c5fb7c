// What all ranks found, as one report.
#pragma once

#include <string>
#include <vector>

#include "apps/doctor/check.h"

namespace titan::doctor {

// A check and the ranks that found it alike; all of them: empty.
struct Finding {
  Check check;
  std::vector<int> ranks = {};
};

// In the order of the first rank that has a check; those of one name stand together. `by_rank`: what each rank found.
std::vector<Finding> merge(const std::vector<Checks>& by_rank);

bool has_failure(const std::vector<Finding>& findings);

// A line for each, with what to do on a line of its own, and a last one that counts.
std::string to_text(const std::vector<Finding>& findings);
// {"ok": true, "checks": [{"name", "state": "ok" | "warning" | "failure", "found", "advice", "ranks": null | [0, 2]}]}
std::string to_json(const std::vector<Finding>& findings);

// From rank to rank.
std::string to_message(const Checks& checks);
Checks from_message(const std::string& message);

}  // namespace titan::doctor
