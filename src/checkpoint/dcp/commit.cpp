#include "checkpoint/dcp/commit.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/io/discard.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

// "a/b/" and "a/b" are the same folder, only the second has a last name.
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
  if (!fs::exists(target)) {
    fs::rename(temporary, target);
    sync_parent(target);
    return;
  }
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    sync_parent(target);
    // The new checkpoint is in place; what cannot be removed of the old one is left to the next save.
    discard(temporary);
    return;
  }
  if (errno != EINVAL && errno != ENOSYS)
    throw CheckpointError("cannot rename " + temporary.string() + " to " + target.string() + ": " +
                          std::strerror(errno));
  put_in_place_by_two_renames(folder);
}

void put_in_place_by_two_renames(const fs::path& folder) {
  const fs::path target = without_trailing_slash(folder);
  free_name(replaced_folder(folder));
  fs::rename(target, replaced_folder(folder));
  sync_parent(target);
  fs::rename(temporary_folder(folder), target);
  sync_parent(target);
  free_name(replaced_folder(folder));
}

void recover_replacement(const fs::path& folder) {
  const fs::path target = without_trailing_slash(folder);
  const fs::path aside = replaced_folder(folder);
  if (!fs::exists(aside)) return;
  if (is_complete(target)) {
    free_name(aside);  // under its name it would come back once `target` is removed
  } else if (is_complete(aside) && !fs::exists(target)) {
    fs::rename(aside, target);
    sync_parent(target);
  }
}

}  // namespace titan::checkpoint
