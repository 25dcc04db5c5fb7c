// events.jsonl: what happened to a run besides its steps, a JSON object a line:
//   {"step": 20, "unix_time": 1763890000.1, "event": "save", "seconds": 0.2}
// `step` is the number of finished steps at the time. Names in use: start and resume (of a process), save, stop (asked
// for by a signal), nan, spike, rollback, diverged, end; and whatever others append. Unlike metrics.jsonl it keeps what
// a crash undid: a resume adds rows, and only a start from step 0 begins the file anew.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/history/step_history.h"

namespace titan::metrics {

class EventLog {
 public:
  // `is_writer`: false on all ranks but 0, where everything here does nothing. Touches no file.
  EventLog(std::filesystem::path folder, bool is_writer) : folder_(std::move(folder)), is_writer_(is_writer) {}

  // Adds a row; `details` is an object whose members join it. Any thread. Rows that come before begin() wait for it.
  // Throws std::system_error naming the file.
  void append(std::string_view event, std::int64_t step, const nlohmann::ordered_json& details = {});

  // When the first step is done: a start that fails before leaves the file as it was. `is_fresh`: training began at
  // step 0.
  void begin(bool is_fresh);

 private:
  std::filesystem::path folder_;
  bool is_writer_;
  std::mutex mutex_;                      // guards what follows
  std::unique_ptr<StepHistory> history_;  // null before begin()
  std::vector<nlohmann::ordered_json> waiting_;
};

}  // namespace titan::metrics
