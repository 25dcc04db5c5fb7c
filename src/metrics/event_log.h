// events.jsonl: what happened to a run besides its steps, one JSON object per line:
//   {"step": 20, "unix_time": 1763890000.1, "event": "save", "seconds": 0.2}
// `step` is the number of finished steps at the time. Event names: start and resume (of a process), save, stop (asked
// for by a signal), nan, spike, rollback, diverged, drift, drifted, end, and any that others append. Unlike
// metrics.jsonl it keeps the rows of steps that a crash undid: a resume adds rows, and only a start from step 0 begins
// the file anew. The launcher appends restart and gave_up (apps/launch/run_progress.h) while no rank runs; a start from
// step 0 right after a restart keeps the rows since the launcher's first start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/run_layout.h"
#include "metrics/history/expendable.h"
#include "metrics/history/step_history.h"

namespace titan::metrics {

class EventLog {
 public:
  // `is_writer`: true on rank 0, false on other ranks, where every call does nothing. Touches no file.
  EventLog(std::filesystem::path folder, bool is_writer) : folder_(std::move(folder)), is_writer_(is_writer) {}

  // Adds a row with the members of the object `details`. Safe from any thread. begin() writes the rows that were added
  // before it. If the file cannot be written, warns once, and adds nothing from then on.
  void append(std::string_view event, std::int64_t step, const nlohmann::ordered_json& details = {});

  // Opens the file. Call when the first step is done: a start that fails earlier leaves the file unchanged. `is_fresh`:
  // training began at step 0.
  void begin(bool is_fresh);

 private:
  std::filesystem::path folder_;
  bool is_writer_;
  std::mutex mutex_;  // guards the members below
  Expendable file_{layout::kEventsFile};
  std::unique_ptr<StepHistory> history_;  // null before begin()
  std::vector<nlohmann::ordered_json> waiting_;
};

// Returns the unix time of the launcher's first start of a run that the launcher has just restarted: the last row of
// `events_file` is a restart. nullopt for all others.
std::optional<double> first_start_before_restart(const std::filesystem::path& events_file);

}  // namespace titan::metrics
