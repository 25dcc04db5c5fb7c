// Writes one folder from all ranks: each rank plans, rank 0 assigns items to ranks, each writes its part, rank 0
// completes the folder and replaces the old one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/dcp/item.h"
#include "checkpoint/dcp/planner.h"
#include "checkpoint/dcp/ranks.h"

namespace titan::checkpoint {

// Steps that differ between folder formats. `folder` is the temporary folder.
struct SaveSteps {
  using Folder = const std::filesystem::path&;

  // Runs on every rank, together with the planning of its items; may be null.
  std::function<void()> plan;
  // Runs on rank 0, before anything is made; may be null.
  std::function<void(const SavePlan& plan)> check;
  // Runs on rank 0, in the new empty folder; may be null.
  std::function<void(Folder folder)> prepare;
  // Runs on every rank: writes items[chosen[0]], items[chosen[1]], … and returns what commit() must know about them.
  std::function<std::string(Folder folder, const std::vector<std::size_t>& chosen)> write;
  // Runs on rank 0 after all ranks have written: writes what is still missing. `written`: results of write(), by rank;
  // `plan` may be changed. Returns the bytes of all files.
  std::function<std::uint64_t(Folder folder, const std::vector<std::string>& written, SavePlan& plan)> commit;
};

// Writes everything to temporary_folder() of `folder`, flushes it to disk and renames it into place. An error in any
// step on any rank becomes one CheckpointError on all ranks, "<action>: ..."; then `folder` is unchanged and the
// written files are removed. If the temporary folder was removed or replaced meanwhile, that is such an error, and its
// name is left to whoever has it now. Collective. Returns the result of commit().
std::uint64_t collective_save(const std::filesystem::path& folder, const std::string& action,
                              const std::vector<Item>& items, Ranks& ranks, const SaveSteps& steps);

}  // namespace titan::checkpoint
