// Copies of a run's state in the memory of its machine: ordinary checkpoints, step-N, in a folder of the run's own on a
// file system in memory. They outlive the ranks, but not the machine. Called on rank 0; nothing here is collective.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace titan::checkpoint {

// File in the run's folder of checkpoints with a random id, which names the folder of its copies: without that file
// nothing finds them. Who removes or moves the checkpoints away, to begin anew, leaves the copies behind with them.
inline constexpr const char* kRunIdFile = "run_id";

// Returns the folder of the copies of the run whose checkpoints are in `base`; empty if there is none, if it belongs to
// another user, or if `base` is a copy of the run's folder of checkpoints: two runs never share it.
std::filesystem::path find_copies(const std::filesystem::path& memory_folder, const std::filesystem::path& base);

// Returns the same folder, and makes what is missing: the id in `base`, and the folder, which only its user may enter.
// Throws CheckpointError, std::system_error.
std::filesystem::path make_copies_folder(const std::filesystem::path& memory_folder, const std::filesystem::path& base);

// Removes what an unfinished copy has left, and all complete ones but the newest: there are two while one is written.
void make_place(const std::filesystem::path& copies);

// Removes the copies of steps after `step`. Warns if it cannot.
void remove_copies_after(const std::filesystem::path& copies, int step);

// Removes all copies, unless the newest is of a later step than every checkpoint in `base`. Warns if it cannot.
void remove_outdated_copies(const std::filesystem::path& copies, const std::filesystem::path& base);

// Throws CheckpointError if a file system with `capacity` bytes, of which `available` are free, has no room for `bytes`
// more. Some of it is left to others in any case: a full file system in memory ends programs that share memory.
void check_room_for_copy(const std::filesystem::path& copies, std::filesystem::space_info space, std::uint64_t bytes);

// Returns the name of the file system of `folder`, or of its nearest parent that exists, if that is not in memory:
// "ext4". Empty if it is.
std::string file_system_on_disk(const std::filesystem::path& folder);

}  // namespace titan::checkpoint
