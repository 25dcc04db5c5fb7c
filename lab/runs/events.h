// Reads events.jsonl: what happened to a run besides its steps.
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
  std::string details;     // "seconds 0.12, background true"; "" if there are none
  bool is_undone = false;  // a later resume or rollback went back before this step
};

// Returns the events in the order in which they happened; none for a folder without the file. Skips
// lines that are not events.
std::vector<Event> read_events(const std::filesystem::path& folder);

}  // namespace titan::runs
