#include "metrics/jsonl_sink.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/fs.h"
#include "base/run_layout.h"

namespace titan::metrics {
namespace {

using Json = nlohmann::ordered_json;

using layout::kStepsFile, layout::kValidationsFile;

Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

// Collects what for_each_metric() gives.
class RowMaker {
 public:
  template <typename Number>
  void operator()(const Metric& metric, const Number& value) {
    if constexpr (std::is_floating_point_v<Number>) {
      row_[std::string(metric.name)] = number(value);
    } else {
      row_[std::string(metric.name)] = value;
    }
  }
  template <typename Number>
  void operator()(const Metric& metric, const std::optional<Number>& value) {
    if (value) {
      (*this)(metric, *value);
    } else if (metric.is_null_when_unknown) {
      row_[std::string(metric.name)] = nullptr;
    }
  }

  Json take() { return std::move(row_); }

 private:
  Json row_;
};

template <typename Metrics>
Json row_of(const Metrics& metrics) {
  RowMaker row;
  for_each_metric(metrics, row);
  return row.take();
}

std::optional<std::int64_t> step_of(std::string_view line) {
  const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) return std::nullopt;
  return row["step"].get<std::int64_t>();
}

// The lines of `content` with a step up to `finished_steps`.
std::string kept_lines(std::string_view content, std::int64_t finished_steps, const std::filesystem::path& path) {
  std::string kept;
  std::int64_t line_number = 0, later = 0;
  while (!content.empty()) {
    ++line_number;
    const auto end = content.find('\n');
    const std::string_view line = content.substr(0, end);
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
    const auto step = step_of(line);
    if (!step) {
      spdlog::warn("{}:{} is not a row of metrics (cut short by a crash?); dropping it", path.string(), line_number);
    } else if (*step > finished_steps) {
      ++later;
    } else {
      kept.append(line).push_back('\n');
    }
  }
  if (later > 0) {
    spdlog::info("{}: dropped {} rows of an earlier run past step {}", path.string(), later, finished_steps);
  }
  return kept;
}

void for_each_line(const std::filesystem::path& path, const std::function<void(const std::string&)>& use) {
  if (!std::filesystem::exists(path)) return;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) use(line);
}

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  throw std::system_error(errno, std::generic_category(), std::string(what) + " " + path.string());
}

}  // namespace

JsonlHistory::JsonlHistory(std::filesystem::path path, std::int64_t finished_steps)
    : path_(std::move(path)), finished_steps_(finished_steps) {}

void JsonlHistory::begin() {
  if (begun_) return;
  begun_ = true;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path());
  if (std::filesystem::exists(path_)) {
    const std::string content = read_file(path_);
    const std::string kept = kept_lines(content, finished_steps_, path_);
    if (kept != content) write_file_atomically(path_, kept);
  }
}

void JsonlHistory::roll_back(std::int64_t finished_steps) {
  // The file is replaced: the next row opens the new one.
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  finished_steps_ = finished_steps;
  begun_ = false;
  begin();
}

JsonlHistory::~JsonlHistory() {
  if (fd_ >= 0) ::close(fd_);
}

void JsonlHistory::append(const nlohmann::ordered_json& row) {
  begin();
  // Made with its first row: a run without validation leaves no empty validation.jsonl.
  if (fd_ < 0) fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("open", path_);
  const std::string line = row.dump() + "\n";
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path_);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

JsonlSink::JsonlSink(const std::filesystem::path& folder, std::int64_t finished_steps)
    : steps_(folder / kStepsFile, finished_steps), validations_(folder / kValidationsFile, finished_steps) {}

void JsonlSink::on_step(std::int64_t /*step*/) {
  steps_.begin();
  validations_.begin();
}

void JsonlSink::log(const StepMetrics& metrics) { steps_.append(row_of(metrics)); }

void JsonlSink::log_validation(const ValidationMetrics& metrics) { validations_.append(row_of(metrics)); }

void JsonlSink::roll_back(std::int64_t finished_steps) {
  steps_.roll_back(finished_steps);
  validations_.roll_back(finished_steps);
}

std::map<std::int64_t, double> read_validation_losses(const std::filesystem::path& folder,
                                                      std::int64_t finished_steps) {
  std::map<std::int64_t, double> losses;
  for_each_line(folder / kValidationsFile, [&](const std::string& line) {
    const auto step = step_of(line);
    if (!step || *step > finished_steps) return;
    const Json row = Json::parse(line);
    // A loss that is a string was not a number.
    if (row.contains("loss") && row["loss"].is_number()) losses[*step] = row["loss"];
  });
  return losses;
}

std::vector<StepMetrics> read_steps(const std::filesystem::path& folder) {
  std::vector<StepMetrics> rows;
  for_each_line(folder / kStepsFile, [&](const std::string& line) {
    const auto step = step_of(line);
    if (!step) return;
    const Json json = Json::parse(line);
    const auto value = [&](const char* key, double otherwise) {
      return json.contains(key) && json[key].is_number() ? json[key].get<double>() : otherwise;
    };
    StepMetrics& row = rows.emplace_back();
    row.step = *step;
    row.loss = value("loss", std::numeric_limits<double>::quiet_NaN());
    row.tokens_seen = static_cast<std::int64_t>(value("tokens_seen", 0));
    row.unix_time = value("unix_time", 0);
  });
  return rows;
}

std::optional<std::int64_t> last_logged_step(const std::filesystem::path& folder) {
  std::optional<std::int64_t> last;
  for (const char* name : {kStepsFile, kValidationsFile})
    for_each_line(folder / name, [&](const std::string& line) { last = std::max(last, step_of(line)); });
  return last;
}

}  // namespace titan::metrics
