// Merges what all ranks found into one report.
#pragma once

#include <string>
#include <vector>

#include "apps/doctor/check.h"

namespace titan::doctor {

// A check, and the ranks that had this result (empty if all had it).
struct Finding {
  Check check;
  std::vector<int> ranks = {};
};

// Groups equal checks. Names are in order of first appearance, from rank 0 on; checks of one name are adjacent.
// `by_rank`: each rank's checks.
std::vector<Finding> merge(const std::vector<Checks>& by_rank);

bool has_failure(const std::vector<Finding>& findings);

// Returns a line per finding, its advice on a separate line, and a last line with the counts.
std::string to_text(const std::vector<Finding>& findings);
// {"ok": true, "checks": [{"name", "state": "ok" | "warning" | "failure", "found", "advice", "ranks": null | [0, 2]}]}
std::string to_json(const std::vector<Finding>& findings);

// Serialize checks, to send them from rank to rank.
std::string to_message(const Checks& checks);
Checks from_message(const std::string& message);

}  // namespace titan::doctor
