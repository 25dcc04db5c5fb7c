#include "checkpoint/io/discard.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/run_layout.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr const char* kRemains = ".remains-";

}  // namespace

void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(text).second) spdlog::warn(text);
}

bool is_taken(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

bool discard(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (!error) return true;
  warn_once(
      "cannot remove all of " + folder.string() + ": " + error.message() +
      ". It is not a checkpoint any more, nothing reads it, and each save tries again; if it stays, find who holds "
      "its files (lsof, lsattr) and remove it by hand");
  return false;
}

bool discard_in_place(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return discard(folder);
  for (const char* name :
       {layout::kMetadataFile, layout::kHuggingFaceIndex, layout::kAdapterConfig, layout::kModelFile}) {
    if (::unlink((folder / name).c_str()) == 0 || errno == ENOENT) continue;
    warn_once("cannot remove " + (folder / name).string() + ": " + std::strerror(errno) + ". The checkpoint stays");
    return false;
  }
  fsync_folder(folder);
  return discard(folder);
}

void free_name(const fs::path& folder) {
  if (discard(folder)) return;
  std::error_code error;
  for (int number = 1; number < 1000; ++number) {
    const fs::path remains = folder.string() + kRemains + std::to_string(number);
    if (is_taken(remains)) continue;
    fs::rename(folder, remains, error);
    if (!error) return;
    break;
  }
  throw CheckpointError("cannot remove " + folder.string() + " and cannot rename it either" +
                        (error ? ": " + error.message() : "") + ". Its name is needed: move it away");
}

void discard_remains(const fs::path& base) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(base, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().find(kRemains) != std::string::npos) found.push_back(entry->path());
  for (const fs::path& remains : found) discard(remains);
}

}  // namespace titan::checkpoint
