#include "apps/launch/run_progress.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/clock.h"
#include "base/fs.h"
#include "base/limits/parse_json.h"
#include "base/run_layout.h"
#include "base/text.h"

namespace titan {
namespace {

namespace fs = std::filesystem;

// Enough for the rows of many steps: a launcher must not read all of a long run's.
constexpr std::streamoff kTailBytes = 1 << 18;

// Calls `use` for the objects at the end of a file, the last one first, until it returns true.
void search_back(const fs::path& path, const std::function<bool(const nlohmann::json& row)>& use) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<std::streamoff>(in.tellg());
  if (!in || size <= 0) return;
  const std::streamoff begin = std::max<std::streamoff>(0, size - kTailBytes);
  std::string text(static_cast<std::size_t>(size - begin), '\0');
  in.seekg(begin);
  in.read(text.data(), size - begin);
  const auto lines = split(text, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const auto row = try_parse_json<nlohmann::json>(*line);
    if (row.is_object() && row.contains("step") && row["step"].is_number_integer() && use(row)) return;
  }
}

double time_of(const nlohmann::json& row) {
  const auto time = row.find("unix_time");
  return time != row.end() && time->is_number() ? time->get<double>() : 0;
}

// True if the file's last line lacks its end: a crash has cut it.
bool is_torn(const fs::path& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return false;
  in.seekg(-1, std::ios::end);
  return in.get() != '\n';
}

}  // namespace

std::int64_t newest_saved_step(const fs::path& checkpoints) {
  std::int64_t newest = 0;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints, error), end; !error && entry != end; entry.increment(error)) {
    const auto step = layout::step_of(entry->path().filename().string());
    if (step && *step > newest && layout::is_complete_save(entry->path())) newest = *step;
  }
  return newest;
}

std::optional<std::int64_t> last_step_since(const fs::path& folder, double unix_time) {
  std::optional<std::int64_t> step;
  search_back(folder / layout::kStepsFile, [&](const nlohmann::json& row) {
    if (time_of(row) >= unix_time) step = row["step"].get<std::int64_t>();
    return true;
  });
  return step;
}

std::optional<std::int64_t> resumed_step_since(const fs::path& folder, double unix_time) {
  std::optional<std::int64_t> step;
  search_back(folder / layout::kEventsFile, [&](const nlohmann::json& row) {
    if (time_of(row) < unix_time) return true;
    const std::string name = row.value("event", "");
    if (name != "start" && name != "resume") return false;
    step = row["step"].get<std::int64_t>();
    return true;
  });
  return step;
}

std::string append_event(const fs::path& folder, const RestartEvent& event) {
  nlohmann::ordered_json row = {
      {"step", event.reached}, {"unix_time", unix_now()}, {"event", std::string(event.event)}};
  row["start"] = event.start;
  row["exit_code"] = event.exit_code;
  if (event.rank) row["rank"] = *event.rank;
  row["reason"] = event.reason;
  if (event.event == "restart") {
    row["resumed_step"] = event.resumed_step;
    row["lost_steps"] = std::max<std::int64_t>(0, event.reached - event.resumed_step);
    if (event.ranks > 0) row["ranks"] = event.ranks;
    row["down_seconds"] = event.down_seconds;
    row["wait_seconds"] = event.wait_seconds;
    row["first_start_unix_time"] = event.first_start;
  }
  const fs::path path = folder / layout::kEventsFile;
  const std::string line =
      (is_torn(path) ? "\n" : "") + row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const bool is_written = fd >= 0 && write_all(fd, line);
  const int reason = errno;
  if (fd >= 0) ::close(fd);
  return is_written ? "" : path.string() + ": " + std::strerror(reason);
}

}  // namespace titan
