#include "lab/runs/events.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/limits/parse_json.h"
#include "base/run_layout.h"

namespace titan::runs {
namespace {

using Json = nlohmann::ordered_json;

std::string details_of(const Json& row) {
  std::string out;
  for (const auto& [key, value] : row.items()) {
    if (key == "step" || key == "unix_time" || key == "event") continue;
    out += (out.empty() ? "" : ", ") + key + " " +
           (value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return out;
}

// Marks events after the step that the run later went back to. Scans the file from the end.
void mark_undone(std::vector<Event>& events) {
  std::int64_t went_back_to = std::numeric_limits<std::int64_t>::max();
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    event->is_undone = event->step > went_back_to;
    if (event->name == "start" || event->name == "resume" || event->name == "rollback")
      went_back_to = std::min(went_back_to, event->step);
  }
}

}  // namespace

std::vector<Event> read_events(const std::filesystem::path& folder) {
  std::vector<Event> out;
  std::ifstream in(folder / layout::kEventsFile, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const Json row = try_parse_json<Json>(line);
    const auto step = find_integer(row, "step");
    if (!step || !row.contains("event") || !row["event"].is_string()) continue;
    const auto time = row.find("unix_time");
    out.push_back({*step, time != row.end() && time->is_number() ? time->get<double>() : 0,
                   row["event"].get<std::string>(), details_of(row)});
  }
  mark_undone(out);
  return out;
}

}  // namespace titan::runs
