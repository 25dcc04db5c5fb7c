// Files of events as TensorBoard's readers want them: each event framed as a TFRecord (its length, a masked CRC-32C of the
// length, the bytes, a masked CRC-32C of the bytes).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace titan::metrics::tensorboard {

// CRC-32C (Castagnoli, reflected).
std::uint32_t crc32c(std::string_view bytes);

// Puts `event` framed in the place of what `out` holds.
void frame(std::string_view event, std::string& out);

// A file of its own in a folder of events, which other files of the run may share. One process writes to it.
class EventFile {
 public:
  // Makes the folder where it is missing, and a file whose name sorts behind those that are there:
  // events.out.tfevents.<seconds>.<host>.<pid>.<number>. `unix_time`: now. Throws std::system_error naming the path.
  EventFile(const std::filesystem::path& folder, double unix_time);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // The event is with the operating system when this returns. Throws std::system_error naming the path.
  void append(std::string_view event);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::string framed_;
};

// Cuts off, from every event file of `folder`, the first event of a step after `last_step` and all that follows it, or the
// first damaged one: those steps run again. A file that nothing is left of but its version goes, and all go where
// `last_step` is 0. Returns the number of files that were changed; 0 where there is no such folder. A TensorBoard that
// looks at them meanwhile sees no damage: a file only ends earlier. Throws std::system_error naming the path.
int cut_events_after(const std::filesystem::path& folder, std::int64_t last_step);

}  // namespace titan::metrics::tensorboard
