#include "checkpoint/dcp/commit.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/step_folders.h"
#include "checkpoint/io/discard.h"
#include "checkpoint/io/read_error.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

// "a/b/" and "a/b" are the same folder, but only the second has a filename().
fs::path without_trailing_slash(const fs::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

void sync_parent(const fs::path& folder) {
  const fs::path parent = folder.parent_path();
  fsync_folder(parent.empty() ? fs::path(".") : parent);
}

}  // namespace

fs::path temporary_folder(const fs::path& folder) { return without_trailing_slash(folder).string() + ".tmp"; }

fs::path replaced_folder(const fs::path& folder) { return without_trailing_slash(folder).string() + ".replaced"; }

void put_in_place(const fs::path& folder) {
  const fs::path target = without_trailing_slash(folder);
  const fs::path temporary = temporary_folder(folder);
  if (!is_taken(target)) {
    fs::rename(temporary, target);
    sync_parent(target);
    return;
  }
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    sync_parent(target);
    // The new checkpoint is in place; the next save removes what cannot be removed of the old one now.
    discard(temporary);
    return;
  }
  // The file system or container may not support swapping; put_in_place_by_removal() handles EXDEV.
  const int reason = errno;
  if (reason != EINVAL && reason != ENOSYS && reason != EPERM && reason != EOPNOTSUPP && reason != EXDEV)
    throw CheckpointError("cannot rename " + temporary.string() + " to " + target.string() + ": " +
                          std::strerror(reason));
  put_in_place_by_two_renames(folder);
}

void put_in_place_by_two_renames(const fs::path& folder) {
  const fs::path target = without_trailing_slash(folder);
  free_name(replaced_folder(folder));
  std::error_code error;
  fs::rename(target, replaced_folder(folder), error);
  if (error == std::errc::cross_device_link) return put_in_place_by_removal(folder);
  if (error) throw fs::filesystem_error("cannot rename", target, replaced_folder(folder), error);
  sync_parent(target);
  fs::rename(temporary_folder(folder), target);
  sync_parent(target);
  free_name(replaced_folder(folder));
}

namespace {

// If the old folder is still complete, gives the replacement a name that recover_replacement() ignores. Returns its
// path.
fs::path keep_replacement(const fs::path& target, const fs::path& aside) {
  if (!is_saved(target)) return aside;  // it is put in place as soon as the rest of the old one can be removed
  const fs::path kept = target.string() + ".complete";
  std::error_code error;
  fs::rename(aside, kept, error);
  return error ? aside : kept;
}

}  // namespace

void put_in_place_by_removal(const fs::path& folder) {
  const fs::path target = without_trailing_slash(folder);
  const fs::path aside = replaced_folder(folder);
  fs::rename(temporary_folder(folder), aside);
  sync_parent(target);
  if (!discard_in_place(target)) {
    const fs::path kept = keep_replacement(target, aside);
    throw CheckpointError("cannot remove all of " + target.string() +
                          ", and its file system cannot rename it (it is in a " +
                          "lower layer of an overlay). Its replacement is complete in " + kept.string() + ": remove " +
                          target.string() + ", then rename that to it");
  }
  fs::rename(aside, target);
  sync_parent(target);
}

void recover_replacement(const fs::path& folder) {
  const fs::path target = without_trailing_slash(folder);
  const fs::path aside = replaced_folder(folder);
  if (!is_there(aside)) return;
  if (is_saved(target)) {
    free_name(aside);  // otherwise it would come back once `target` is removed
  } else if (is_saved(aside) && (!is_taken(target) || discard(target))) {  // put_in_place_by_removal() was killed
    fs::rename(aside, target);
    sync_parent(target);
  }
}

}  // namespace titan::checkpoint
