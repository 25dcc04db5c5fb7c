#include "metrics/event_log.h"

#include <limits>
#include <string>

#include "base/clock.h"
#include "metrics/history/json_lines.h"

namespace titan::metrics {

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
    if (is_fresh) std::filesystem::remove(path);
    // No step exceeds the maximum: this only drops a last line torn by a crash.
    history_ = std::make_unique<StepHistory>(path, std::numeric_limits<std::int64_t>::max(),
                                             json_lines("the row of an event"));
    for (const auto& row : waiting_) history_->append(row.dump());
    waiting_.clear();
  });
}

}  // namespace titan::metrics
