#include "checkpoint/dcp/collective_save.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/dcp/commit.h"
#include "checkpoint/io/discard.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

// Encodes the items that each rank writes.
std::string encode_assignment(const SavePlan& plan) {
  std::string bytes;
  nlohmann::json::to_msgpack(nlohmann::json(plan.items), bytes);
  return bytes;
}

std::vector<std::size_t> items_of_rank(const std::string& assignment, int rank) {
  return nlohmann::json::from_msgpack(assignment).at(static_cast<std::size_t>(rank)).get<std::vector<std::size_t>>();
}

SavePlan join_plans(const std::vector<std::string>& plans) {
  std::vector<std::vector<PlanEntry>> decoded;
  for (const std::string& bytes : plans) decoded.push_back(decode_plan(bytes));
  return plan_save(decoded);
}

void make_fresh_folder(const fs::path& folder) {
  if (!folder.parent_path().empty()) fs::create_directories(folder.parent_path());
  free_name(folder);
  fs::create_directory(folder);
}

void wait_for_rank_0(Ranks& ranks) {
  try {
    ranks.broadcast("", 0);
  } catch (const std::exception&) {
    // Rank 0 or another rank is gone; the error that led here came first.
  }
}

}  // namespace

std::uint64_t collective_save(const fs::path& folder, const std::string& action, const std::vector<Item>& items,
                              Ranks& ranks, const SaveSteps& steps) {
  const fs::path temporary = temporary_folder(folder);
  const auto plans = on_every_rank(ranks, action, [&] {
    if (steps.plan) steps.plan();
    return encode_plan(local_plan(items));
  });
  SavePlan plan;  // filled on rank 0 only
  const std::string assignment = on_rank_0(ranks, action, [&] {
    plan = join_plans(plans);
    make_fresh_folder(temporary);
    if (steps.prepare) steps.prepare(temporary);
    return encode_assignment(plan);
  });
  try {
    const auto written =
        on_every_rank(ranks, action, [&] { return steps.write(temporary, items_of_rank(assignment, ranks.rank())); });
    return std::stoull(on_rank_0(ranks, action, [&] {
      const std::uint64_t bytes = steps.commit(temporary, written, plan);
      fsync_folder(temporary);
      put_in_place(folder);
      return std::to_string(bytes);
    }));
  } catch (const CheckpointError&) {
    // Frees the disk space. The folder may already be the old checkpoint, swapped out but not removed. All ranks wait
    // for rank 0: a rank that ended its process now would also end rank 0 during this work.
    std::error_code ignored;
    if (ranks.rank() == 0) fs::remove_all(temporary, ignored);
    wait_for_rank_0(ranks);
    throw;
  }
}

}  // namespace titan::checkpoint
