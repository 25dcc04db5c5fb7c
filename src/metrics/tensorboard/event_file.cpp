#include "metrics/tensorboard/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <vector>

#include "base/fs.h"
#include "base/process/rank_process.h"
#include "metrics/rows/step_metrics.h"
#include "metrics/tensorboard/event.h"

namespace titan::metrics::tensorboard {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::size_t kHeaderBytes = 12, kFooterBytes = 4;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
    table[byte] = crc;
  }
  return table;
}

// Masks the checksum as TFRecords do, so that a checksum of bytes that hold checksums is as good as any other.
std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

void put_little_endian(std::string& out, std::uint64_t value, int size) {
  for (int i = 0; i < size; ++i) out.push_back(static_cast<char>(value >> 8 * i));
}

std::uint64_t get_little_endian(std::string_view bytes, std::size_t at, int size) {
  std::uint64_t value = 0;
  for (int i = 0; i < size; ++i) value |= std::uint64_t{static_cast<unsigned char>(bytes[at + i])} << 8 * i;
  return value;
}

[[noreturn]] void throw_errno(const fs::path& path) {
  throw std::system_error(errno, std::generic_category(), path.string());
}

// Returns how many bytes of `file`, the content of an event file, are complete events of steps up to `last_step`; 0 if
// that is only the version.
std::size_t size_until(std::string_view file, std::int64_t last_step) {
  std::size_t at = 0;
  int num_events = 0;
  while (file.size() - at >= kHeaderBytes + kFooterBytes) {
    const auto length = get_little_endian(file, at, 8);
    if (masked_crc32c(file.substr(at, 8)) != get_little_endian(file, at + 8, 4)) break;
    if (length > file.size() - at - kHeaderBytes - kFooterBytes) break;
    const std::string_view event = file.substr(at + kHeaderBytes, length);
    if (masked_crc32c(event) != get_little_endian(file, at + kHeaderBytes + length, 4)) break;
    const auto step = step_of_event(event);
    if (!step || *step > last_step) break;
    at += kHeaderBytes + length + kFooterBytes;
    ++num_events;
  }
  return num_events > 1 ? at : 0;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = make_table();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

void frame(std::string_view event, std::string& out) {
  out.clear();
  put_little_endian(out, event.size(), 8);
  put_little_endian(out, masked_crc32c(out), 4);
  out.append(event);
  put_little_endian(out, masked_crc32c(event), 4);
}

EventFile::EventFile(const fs::path& folder, double unix_time, const std::string& end) {
  framed_.reserve(kMaxRowBytes);
  fs::create_directories(folder);
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%010lld", static_cast<long long>(unix_time));
  const std::string host = host_name();
  const std::string stem = std::string(kPrefix) + seconds + "." + (host.empty() ? "localhost" : host) + "." +
                           std::to_string(::getpid()) + ".";
  // A start within a second of another one takes the next number.
  for (int number = 0; fd_ < 0; ++number) {
    path_ = folder / (stem + std::to_string(number) + end);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) throw_errno(path_);
  }
  watch_.emplace(fd_, path_);
  append(EventEncoder().version(unix_time));
}

EventFile::~EventFile() { ::close(fd_); }

void EventFile::append(std::string_view event) {
  watch_->check();
  frame(event, framed_);
  if (!write_all(fd_, framed_)) throw_errno(path_);
}

int cut_events_after(const fs::path& folder, std::int64_t last_step, std::string_view end) {
  if (!fs::is_directory(folder)) return 0;
  std::vector<fs::path> files;
  std::error_code error;  // of a link that leads nowhere, or to itself
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool has_mark = name.find(kRunMark, name.rfind('.')) != std::string::npos;  // a host may be called x.run-1
    const bool is_own = end.empty() ? !has_mark : name.ends_with(end);
    if (name.starts_with(kPrefix) && is_own && entry.is_regular_file(error)) files.push_back(entry.path());
  }
  int cut = 0;
  for (const fs::path& file : files) {
    const std::string content = read_file(file);
    const std::size_t kept = last_step > 0 ? size_until(content, last_step) : 0;
    if (kept > 0 && kept == content.size()) continue;
    if (kept > 0) {
      fs::resize_file(file, kept);
    } else {
      fs::remove(file);
    }
    ++cut;
  }
  return cut;
}

}  // namespace titan::metrics::tensorboard
