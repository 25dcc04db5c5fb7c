#include "metrics/history/step_history.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/fs.h"
#include "base/text.h"
#include "metrics/rows/step_metrics.h"

namespace titan::metrics {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* what, const fs::path& path) {
  throw std::system_error(errno, std::generic_category(), std::string(what) + " " + path.string());
}

// Removes the first line from `content` and returns it without its newline.
std::string_view take_line(std::string_view& content) {
  const auto end = content.find('\n');
  const std::string_view line = content.substr(0, end);
  content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
  return line;
}

// Returns the lines of `content` with a step up to `finished_steps`, below the header if there is one.
std::string kept_lines(std::string_view content, std::int64_t finished_steps, const StepHistory::Format& format,
                       const fs::path& path) {
  std::string kept;
  std::int64_t line_number = 0, later = 0;
  while (!content.empty()) {
    ++line_number;
    const bool may_be_torn = format.needs_newline && content.find('\n') == std::string_view::npos;
    const std::string_view line = take_line(content);
    if (line_number == 1 && line == format.header) {
      kept.append(line).push_back('\n');
      continue;
    }
    const auto step = may_be_torn ? std::nullopt : format.step_of(line);
    if (!step) {
      spdlog::warn("{}:{} is not {} (cut short by a crash?); dropping it", path.string(), line_number, format.row);
    } else if (*step > finished_steps) {
      ++later;
    } else {
      kept.append(line).push_back('\n');
    }
  }
  if (later > 0) {
    spdlog::info("{}: dropped {} of an earlier run past step {}", path.string(), counted(later, "row"), finished_steps);
  }
  return kept;
}

}  // namespace

StepHistory::StepHistory(fs::path path, std::int64_t finished_steps, Format format)
    : path_(std::move(path)), finished_steps_(finished_steps), format_(std::move(format)) {
  line_.reserve(kMaxRowBytes);
}

StepHistory::~StepHistory() {
  if (fd_ >= 0) ::close(fd_);
}

void StepHistory::begin() {
  if (begun_) return;
  begun_ = true;
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path());
  if (!fs::exists(path_)) return;
  const std::string content = read_file(path_);
  std::string_view rest = content;
  const bool is_of_this_format = format_.header.empty() || content.empty() || take_line(rest) == format_.header;
  if (!is_of_this_format && finished_steps_ > 0) return put_aside();
  const std::string kept = is_of_this_format ? kept_lines(content, finished_steps_, format_, path_) : std::string();
  if (kept != content) write_file_atomically(path_, kept);
}

void StepHistory::roll_back(std::int64_t finished_steps) {
  check();
  // The file is replaced: the next row opens the new one.
  watch_.reset();
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  finished_steps_ = finished_steps;
  begun_ = false;
  begin();
}

// Renames the file: rows with other columns must not be mixed with these.
void StepHistory::put_aside() {
  fs::path aside = path_;
  aside += ".until-step-" + std::to_string(finished_steps_);
  fs::rename(path_, aside);
  spdlog::warn(
      "{} has other columns than this version of the program writes; it is {} from here on, and a new one begins",
      path_.string(), aside.string());
}

// Creates the file with its first row: a run without validation leaves no empty validation.jsonl.
void StepHistory::open() {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("open", path_);
  watch_.emplace(fd_, path_);
  if (!format_.header.empty() && fs::file_size(path_) == 0) line_ = format_.header + "\n";
}

void StepHistory::append(std::string_view row) {
  begin();
  check();
  line_.clear();
  if (fd_ < 0) open();
  line_.append(row).push_back('\n');
  if (!write_all(fd_, line_)) fail("write", path_);
}

void StepHistory::check() const {
  if (watch_) watch_->check();
}

}  // namespace titan::metrics
