// Writes and reads a checkpoint folder. Both calls are collective: all ranks of the group, each with its own items.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/dcp/item.h"
#include "checkpoint/dcp/ranks.h"

namespace titan::checkpoint {

struct SaveOptions {
  int files_per_rank = 1;  // written in parallel; more help if one file is slower than the file system
  std::map<std::string, std::string> texts = {};  // additional files, name -> content; only rank 0's are written
  // Called on rank 0 before anything is written, with about as many bytes as all ranks will write; throws to refuse
  // the save. May be null.
  std::function<void(std::uint64_t bytes)> check_room = nullptr;
};

// Writes `folder` so that at any moment, also after a kill, it holds either the old or the new checkpoint: everything
// is written to `folder`.tmp and flushed to disk, the checksums of all files (checksums.h) and then .metadata last, and
// the folder is renamed into place. A failure on any rank throws CheckpointError on all ranks and leaves `folder`
// unchanged. Returns the number of bytes that all ranks wrote.
std::uint64_t save(const std::filesystem::path& folder, const std::vector<Item>& items, Ranks& ranks,
                   const SaveOptions& options = {});
std::uint64_t save(const std::filesystem::path& folder, const std::vector<Item>& items, dist::ProcessGroup& group,
                   const SaveOptions& options = {});

struct LoadOptions {
  bool all_weights = false;  // the items are a full model: fail if the checkpoint has other weights
};

// Fills the tensors of `items` in place, regardless of how many ranks wrote them, and returns the values; optional
// values that the checkpoint lacks are absent. Throws CheckpointError on all ranks if a key is missing or a shape
// differs on any rank or a file cannot be read (read_error.h), DamagedCheckpoint if a file is missing, truncated or
// changed; tensors may then be partly filled.
Values load(const std::filesystem::path& folder, const std::vector<Item>& items, Ranks& ranks,
            const LoadOptions& options = {});
Values load(const std::filesystem::path& folder, const std::vector<Item>& items, dist::ProcessGroup& group,
            const LoadOptions& options = {});

// Completes a replacement of `folder` that a kill interrupted on a file system that cannot swap folders: the folder set
// aside is renamed back, or removed if `folder` is complete. Not collective: call on rank 0.
void recover_replacement(const std::filesystem::path& folder);

}  // namespace titan::checkpoint
