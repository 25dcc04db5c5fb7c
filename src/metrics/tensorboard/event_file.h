// Writes event files for TensorBoard's readers: each event is framed as a TFRecord (its length, a masked CRC-32C of the
// length, the bytes, a masked CRC-32C of the bytes).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/files/path_watch.h"

namespace titan::metrics::tensorboard {

// Begins the end of the names of files that a run has in a folder outside its own.
inline constexpr std::string_view kRunMark = ".run-";

// CRC-32C (Castagnoli, reflected).
std::uint32_t crc32c(std::string_view bytes);

// Replaces the content of `out` with the framed `event`.
void frame(std::string_view event, std::string& out);

// A new event file, in a folder that may hold other files of the run. Only one process writes to it.
class EventFile {
 public:
  // Creates the folder if it is missing, and a file whose name sorts behind the existing ones:
  // events.out.tfevents.<seconds>.<host>.<pid>.<number><end>. `unix_time`: now. Throws std::system_error naming the
  // path.
  EventFile(const std::filesystem::path& folder, double unix_time, const std::string& end = "");
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Appends an event; the operating system has it when this returns. Throws std::system_error naming the path, also if
  // the file was removed or replaced.
  void append(std::string_view event);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::optional<PathWatch> watch_;  // of fd_
  std::string framed_;
};

// Cuts every event file of `folder` whose name ends with `end` at its first event of a step after `last_step`, or at
// its first damaged event: those steps run again. An empty `end` stands for names that do not end with kRunMark and
// more. Removes a file of which only the version would remain, and all files if `last_step` is 0. Returns the number of
// changed files; 0 if the folder does not exist. A TensorBoard that reads them meanwhile sees no damage: a file only
// ends earlier. Throws std::system_error naming the path.
int cut_events_after(const std::filesystem::path& folder, std::int64_t last_step, std::string_view end = "");

}  // namespace titan::metrics::tensorboard
