// Reads from a run's files how far its ranks came, and adds restarts to its events.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace titan {

// Returns the newest step with a complete checkpoint in `checkpoints`; 0 if there is none.
std::int64_t newest_saved_step(const std::filesystem::path& checkpoints);

// Returns the step of the last row in `folder`/metrics.jsonl; nullopt if there is none that was written after
// `unix_time` (seconds since 1970).
std::optional<std::int64_t> last_step_since(const std::filesystem::path& folder, double unix_time);

// Returns the step after which the last start that made a step after `unix_time` went on, from events.jsonl; nullopt if
// there was no such start.
std::optional<std::int64_t> resumed_step_since(const std::filesystem::path& folder, double unix_time);

// A row of events.jsonl.
struct RestartEvent {
  std::string_view event = "restart";  // or "gave_up"
  std::int64_t start = 0;              // number of the start that follows, the first is 1; of gave_up: that has ended
  std::int64_t exit_code = 0;
  std::optional<std::int64_t> rank = std::nullopt;  // which failed first
  std::string reason = {};
  std::int64_t reached = 0;       // step that the last start came to
  std::int64_t resumed_step = 0;  // step that the next start goes on from
  std::int64_t ranks = 0;         // of the next start; 0: not known, and left out
  double down_seconds = 0;        // since the failure, with the wait
  double wait_seconds = 0;        // of it, the wait
  double first_start = 0;         // unix time of the first start of this launcher
};

// Adds the row. Call it while no rank runs. Returns the reason if the file cannot be written; empty on success.
std::string append_event(const std::filesystem::path& folder, const RestartEvent& event);

}  // namespace titan
