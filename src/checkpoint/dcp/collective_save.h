// How all ranks write one folder: each plans, rank 0 decides who writes what, each writes its part, rank 0 completes the
// folder and puts it in the place of an old one.
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

// What the formats of a folder differ in. `folder` is the temporary one.
struct SaveSteps {
  using Folder = const std::filesystem::path&;

  // On every rank, beside the plan of its items; may be null.
  std::function<void()> plan;
  // On rank 0, in a folder that is new and empty; may be null.
  std::function<void(Folder folder)> prepare;
  // On every rank: writes items[chosen[0]], items[chosen[1]], … and gives what commit() must know of them.
  std::function<std::string(Folder folder, const std::vector<std::size_t>& chosen)> write;
  // On rank 0 after all have written: writes what is still missing. `written`: what write() gave, by rank; `plan` is
  // its own to change. Gives the bytes of all files.
  std::function<std::uint64_t(Folder folder, const std::vector<std::string>& written, SavePlan& plan)> commit;
};

// Everything goes to the temporary_folder() of `folder`, which is flushed to the disk and renamed into place. What any
// step throws on any rank becomes one CheckpointError on all ranks, "<action>: ..."; `folder` is then as it was, and
// what was written is removed. Collective. Gives what commit() gave.
std::uint64_t collective_save(const std::filesystem::path& folder, const std::string& action,
                              const std::vector<Item>& items, Ranks& ranks, const SaveSteps& steps);

}  // namespace titan::checkpoint
