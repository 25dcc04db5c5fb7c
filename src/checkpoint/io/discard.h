// Removes folders of checkpoints without failing: a save does not need tidying up to succeed. Rank 0's business:
// nothing here is collective.
#pragma once

#include <filesystem>
#include <string>

namespace titan::checkpoint {

// Removes `folder` and what is in it; it may be missing. Returns whether it is gone. What cannot be removed (a file
// that another process holds open over NFS, one that is immutable or of another owner) is left where it is, and is
// warned of once in this process.
bool discard(const std::filesystem::path& folder);

// As discard() for a checkpoint that cannot be renamed first: the file goes first that makes it one for its readers.
bool discard_in_place(const std::filesystem::path& folder);

// Removes `folder`, or where that cannot be, renames what is left of it to `folder`.remains-1, -2, ..., a name that no
// reader takes. Throws CheckpointError when it can be neither removed nor renamed.
void free_name(const std::filesystem::path& folder);

// Warns where this process has not said the same before: a save tries again what an earlier one could not do.
void warn_once(const std::string& text);

// Tries again to remove what free_name() left in `base`.
void discard_remains(const std::filesystem::path& base);

}  // namespace titan::checkpoint
