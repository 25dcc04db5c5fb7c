// Putting a finished folder in the place of an old one.
#pragma once

#include <filesystem>

namespace titan::checkpoint {

// The folder a checkpoint is written to before it is put in place, and where an old one stands aside meanwhile.
std::filesystem::path temporary_folder(const std::filesystem::path& folder);
std::filesystem::path replaced_folder(const std::filesystem::path& folder);

// Renames `temporary_folder(folder)` to `folder` and makes that durable; an old `folder` is removed after. Where the
// file system can swap two folders in one step, `folder` exists at every moment; elsewhere recover_replacement() is
// needed after a kill. Throws CheckpointError or std::filesystem::filesystem_error.
void put_in_place(const std::filesystem::path& folder);

// As put_in_place() for file systems that cannot swap.
void put_in_place_by_two_renames(const std::filesystem::path& folder);

// As put_in_place() for an old folder that cannot be renamed: one of an overlay's lower layer (EXDEV). The new one
// waits at replaced_folder(), where recover_replacement() finds it after a kill, until the old one is removed.
void put_in_place_by_removal(const std::filesystem::path& folder);

}  // namespace titan::checkpoint
