// Puts a finished folder in place of an old one.
#pragma once

#include <filesystem>

namespace titan::checkpoint {

// The folder that a checkpoint is written to before it is put in place, and the one that holds the old one meanwhile.
std::filesystem::path temporary_folder(const std::filesystem::path& folder);
std::filesystem::path replaced_folder(const std::filesystem::path& folder);

// Renames `temporary_folder(folder)` to `folder` durably, then removes an old `folder`. If the file system can swap two
// folders in one step, `folder` exists at every moment; otherwise recover_replacement() is needed after a kill. Throws
// CheckpointError or std::filesystem::filesystem_error.
void put_in_place(const std::filesystem::path& folder);

// Does the same as put_in_place(), on file systems that cannot swap.
void put_in_place_by_two_renames(const std::filesystem::path& folder);

// Does the same for an old folder that cannot be renamed because it is in an overlay's lower layer (EXDEV). The new
// folder waits at replaced_folder(), where recover_replacement() finds it after a kill, until the old one is removed.
void put_in_place_by_removal(const std::filesystem::path& folder);

}  // namespace titan::checkpoint
