// Writes and reads a checkpoint folder. Both calls are collective: all ranks of the group, each with its own items.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/run_layout.h"
#include "checkpoint/dcp/item.h"
#include "checkpoint/dcp/ranks.h"

namespace titan::checkpoint {

// The configuration of the run that saved a checkpoint, as config.toml has it, among its files.
inline constexpr const char* kRunConfigFile = layout::kSavedConfigFile;

struct SaveOptions {
  int files_per_rank = 1;  // written at the same time; more help where one file is slower than the file system
  std::map<std::string, std::string> texts = {};  // further files, name -> content; rank 0's count
};

// Writes `folder` so that at any moment, also after a kill, it holds the old checkpoint or the new one: everything goes
// to `folder`.tmp, is flushed to the disk, .metadata last, just after the checksums of all files (checksums.h), and the
// folder is renamed into place. A failure on any rank
// throws CheckpointError on all ranks and leaves `folder` as it was. Gives the number of bytes that all ranks wrote.
std::uint64_t save(const std::filesystem::path& folder, const std::vector<Item>& items, Ranks& ranks,
                   const SaveOptions& options = {});
std::uint64_t save(const std::filesystem::path& folder, const std::vector<Item>& items, dist::ProcessGroup& group,
                   const SaveOptions& options = {});

struct LoadOptions {
  bool all_weights = false;  // the items are a whole model: a weight that is not among them means another model
};

// Fills the tensors of `items` in place, from however many ranks wrote them, and gives their values; optional ones that
// the checkpoint lacks are absent. Throws CheckpointError on all ranks when a key is missing or a shape differs on any,
// DamagedCheckpoint when a file is missing, truncated or changed; tensors may be half filled then.
Values load(const std::filesystem::path& folder, const std::vector<Item>& items, Ranks& ranks,
            const LoadOptions& options = {});
Values load(const std::filesystem::path& folder, const std::vector<Item>& items, dist::ProcessGroup& group,
            const LoadOptions& options = {});

// Ends what a kill interrupted: when `folder` was being replaced on a file system that cannot swap folders, the old one
// may stand aside; it is put back, or removed when the new one is in place. Not collective: rank 0 calls it.
void recover_replacement(const std::filesystem::path& folder);

}  // namespace titan::checkpoint
