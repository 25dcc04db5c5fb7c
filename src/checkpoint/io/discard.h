// Removes folders of checkpoints without failing: a save succeeds even if the cleanup does not. Called on rank 0;
// nothing here is collective.
#pragma once

#include <filesystem>
#include <string>

namespace titan::checkpoint {

// True if there is anything under that name, also a link that leads nowhere.
bool is_taken(const std::filesystem::path& path);

// Removes `folder` and its content; it may be missing. Returns true if it is gone. Files that cannot be removed (held
// open by another process over NFS, immutable, or of another owner) stay, with one warning per process.
bool discard(const std::filesystem::path& folder);

// Does the same for a checkpoint that cannot be renamed: first removes the file that makes it a checkpoint for readers.
bool discard_in_place(const std::filesystem::path& folder);

// Removes `folder`, or if that fails renames the rest of it to `folder`.remains-1, -2, ..., a name that readers ignore.
// Throws CheckpointError if it can be neither removed nor renamed.
void free_name(const std::filesystem::path& folder);

// Logs a warning once per process: each save retries what an earlier one could not do.
void warn_once(const std::string& text);

// Tries again to remove what free_name() left in `base`.
void discard_remains(const std::filesystem::path& base);

}  // namespace titan::checkpoint
