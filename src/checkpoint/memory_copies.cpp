#include "checkpoint/memory_copies.h"

#include <linux/magic.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/text.h"
#include "checkpoint/dcp/save_id.h"
#include "checkpoint/dcp/step_folders.h"
#include "checkpoint/io/discard.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

// Says in the folder of the copies whose they are.
constexpr const char* kOwnerFile = "checkpoints_of_run.txt";

bool is_id(const std::string& text) {
  return text.size() == 36 && text.find_first_not_of("0123456789abcdef-") == std::string::npos;
}

// Returns the name of the run's folder: its id, and the number of the file that has it, which differs in a copy of the
// run's folder. Empty if there is no id.
std::string name_of_run(const fs::path& base) {
  const fs::path file = base / kRunIdFile;
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return "";
  std::string id;
  try {
    id = read_file(file);
  } catch (const DataError& error) {
    warn_once("No copies in memory are looked for: " + std::string(error.what()));
    return "";
  }
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return is_id(id) ? id + "-" + std::to_string(status.st_ino) : "";
}

// True for a folder, and no link, of this process's user: another user could put anything in its place.
bool is_own_folder(const fs::path& folder) {
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

// Makes the folder of all runs, in which every user may make a folder and remove none but his own.
void make_shared_folder(const fs::path& folder) {
  if (fs::create_directories(folder)) ::chmod(folder.c_str(), 01777);
}

}  // namespace

fs::path find_copies(const fs::path& memory_folder, const fs::path& base) {
  if (memory_folder.empty()) return {};
  const std::string name = name_of_run(base);
  if (name.empty() || !is_own_folder(memory_folder / name)) return {};
  return memory_folder / name;
}

fs::path make_copies_folder(const fs::path& memory_folder, const fs::path& base) {
  fs::create_directories(base);
  if (name_of_run(base).empty()) write_file_atomically(base / kRunIdFile, new_save_id() + "\n");
  make_shared_folder(memory_folder);
  const fs::path folder = memory_folder / name_of_run(base);
  if (::mkdir(folder.c_str(), 0700) == 0) {
    write_file_atomically(folder / kOwnerFile, fs::absolute(base).lexically_normal().string() + "\n");
  } else if (errno != EEXIST) {
    throw CheckpointError("cannot make " + folder.string() + ": " + std::strerror(errno));
  }
  if (!is_own_folder(folder)) throw CheckpointError(folder.string() + " is not a folder of this user");
  return folder;
}

void make_place(const fs::path& copies) {
  clean_up(copies);
  remove_old_steps(copies, 1, /*rule=*/nullptr);
}

void remove_copies_after(const fs::path& copies, int step) {
  if (copies.empty()) return;
  try {
    for (const int found : steps_in(copies))
      if (found > step) discard_in_place(step_folder(copies, found));
  } catch (const std::exception& error) {
    warn_once("Copies in " + copies.string() + " could not be removed: " + error.what());
  }
}

void remove_outdated_copies(const fs::path& copies, const fs::path& base) {
  if (copies.empty()) return;
  try {
    std::vector<int> saved = steps_in(base);
    std::erase_if(saved, [&](int step) { return !is_saved(step_folder(base, step)); });
    const std::vector<int> copied = steps_in(copies);
    if (!copied.empty() && (saved.empty() || saved.back() < copied.back())) return;
    discard(copies);
  } catch (const std::exception& error) {
    warn_once("Copies in " + copies.string() + " could not be removed: " + error.what());
  }
}

void check_room_for_copy(const fs::path& copies, fs::space_info space, std::uint64_t bytes) {
  if (space.capacity == 0) return;  // ramfs does not say
  constexpr std::uintmax_t kMostForOthers = std::uintmax_t{64} << 20;
  const std::uintmax_t for_others = std::min(kMostForOthers, space.capacity / 8);
  if (space.available >= for_others && space.available - for_others >= bytes) return;
  const auto text = [](std::uintmax_t number) { return format_bytes(static_cast<double>(number)); };
  throw CheckpointError("there is no room in " + copies.string() + ": a copy takes " + text(bytes) + ", and " +
                        text(space.available) + " are free, of which " + text(for_others) + " stay free for others");
}

std::string file_system_on_disk(const fs::path& folder) {
  struct statfs status {};
  if (::statfs(existing_part(folder).c_str(), &status) != 0) return std::string("unknown: ") + std::strerror(errno);
  const auto type = static_cast<std::uint32_t>(status.f_type);
  if (type == TMPFS_MAGIC || type == RAMFS_MAGIC) return "";
  static const std::vector<std::pair<std::uint32_t, const char*>> kNames = {
      {EXT4_SUPER_MAGIC, "ext4"},           {XFS_SUPER_MAGIC, "xfs"}, {BTRFS_SUPER_MAGIC, "btrfs"},
      {OVERLAYFS_SUPER_MAGIC, "overlayfs"}, {NFS_SUPER_MAGIC, "nfs"}, {FUSE_SUPER_MAGIC, "fuse"}};
  const auto name = std::ranges::find(kNames, type, &std::pair<std::uint32_t, const char*>::first);
  if (name != kNames.end()) return name->second;
  char number[16];
  std::snprintf(number, sizeof(number), "0x%x", type);
  return std::string("of type ") + number;
}

}  // namespace titan::checkpoint
