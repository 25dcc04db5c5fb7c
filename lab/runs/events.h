// events.jsonl as it is read again: what happened to a run besides its steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace titan::runs {

struct Event {
  std::int64_t step = 0;   // finished steps at the time
  double unix_time = 0;    // seconds
  std::string name;        // "start", "resume", "save", "spike", ...
  std::string details;     // "seconds 0.12, background true"; "" where there are none
  bool is_undone = false;  // the run went on from an earlier step later on, and this step has run again
};

// In the order in which they happened. A folder without the file has none, and other lines are skipped.
std::vector<Event> read_events(const std::filesystem::path& folder);

}  // namespace titan::runs
