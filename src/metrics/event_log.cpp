#include "metrics/event_log.h"

#include <limits>
#include <sstream>
#include <string>

#include "base/clock.h"
#include "base/fs.h"
#include "metrics/history/json_lines.h"

namespace titan::metrics {
namespace {

namespace fs = std::filesystem;

// Removes the events of earlier runs; those of this run remain, if its launcher has just restarted it.
void remove_earlier_runs(const fs::path& path) {
  const auto since = first_start_before_restart(path);
  if (!since) {
    fs::remove(path);
    return;
  }
  std::string kept;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);)
    if (const auto row = parse_row(line); row && row->value("unix_time", 0.0) >= *since) kept += line + "\n";
  write_file_atomically(path, kept);
}

}  // namespace

std::optional<double> first_start_before_restart(const fs::path& events_file) {
  std::optional<double> since;
  if (!fs::exists(events_file)) return since;
  std::istringstream lines(read_file(events_file));
  for (std::string line; std::getline(lines, line);) {
    const auto row = parse_row(line);
    if (!row) continue;
    since.reset();
    const auto found = row->find("first_start_unix_time");
    if (row->value("event", "") == "restart" && found != row->end() && found->is_number()) since = found->get<double>();
  }
  return since;
}

void EventLog::append(std::string_view event, std::int64_t step, const nlohmann::ordered_json& details) {
  if (!is_writer_) return;
  nlohmann::ordered_json row = {{"step", step}, {"unix_time", unix_now()}, {"event", std::string(event)}};
  if (details.is_object()) row.update(details);
  const std::lock_guard lock(mutex_);
  file_.run([&] {
    if (history_) {
      history_->append(row.dump());
    } else {
      waiting_.push_back(std::move(row));
    }
  });
}

void EventLog::begin(bool is_fresh) {
  if (!is_writer_) return;
  const std::lock_guard lock(mutex_);
  if (history_) return;
  file_.run([&] {
    const auto path = folder_ / layout::kEventsFile;
    if (is_fresh) remove_earlier_runs(path);
    // No step exceeds the maximum: this only drops a last line torn by a crash.
    history_ = std::make_unique<StepHistory>(path, std::numeric_limits<std::int64_t>::max(),
                                             json_lines("the row of an event"));
    for (const auto& row : waiting_) history_->append(row.dump());
    waiting_.clear();
  });
}

}  // namespace titan::metrics
