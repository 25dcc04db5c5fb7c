#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/archive.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/commit.h"
#include "checkpoint/planner.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

std::string pack(const Json& json) {
  std::string bytes;
  Json::to_msgpack(json, bytes);
  return bytes;
}

std::string file_name(int rank) { return "__" + std::to_string(rank) + "_0.distcp"; }

// A random UUID (version 4), as DCP stores with each save.
std::string new_save_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) id.push_back('-');
    unsigned digit = random() & 15;
    if (i == 12) digit = 4;
    if (i == 16) digit = 8 | (digit & 3);
    id.push_back("0123456789abcdef"[digit]);
  }
  return id;
}

void make_fresh_folder(const fs::path& folder) {
  if (!folder.parent_path().empty()) fs::create_directories(folder.parent_path());
  fs::remove_all(folder);
  fs::create_directory(folder);
}

// Gives the lengths of the archives, in the order of `chosen`. They follow one another without gaps.
std::vector<std::uint64_t> write_file(const fs::path& path, const std::vector<Item>& items,
                                      const std::vector<std::size_t>& chosen) {
  OutputFile file(path);
  std::vector<std::uint64_t> lengths;
  for (const std::size_t index : chosen) {
    const Item& item = items.at(index);
    if (const auto* tensor = std::get_if<TensorItem>(&item)) {
      lengths.push_back(write_tensor_archive(file, tensor->local));
    } else {
      lengths.push_back(write_value_archive(file, std::get<ValueItem>(item).value));
    }
  }
  file.finish();
  return lengths;
}

// Rank 0's part after all data is on the disk. Gives the total number of bytes.
std::uint64_t write_metadata(const fs::path& temporary, const fs::path& folder, SavePlan& plan,
                             const std::vector<std::string>& lengths) {
  StorageOrder order;
  std::uint64_t total = 0;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    const auto sizes = Json::from_msgpack(lengths[rank]).get<std::vector<std::uint64_t>>();
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      set_location(plan.metadata, plan.storage[rank].at(i), {file_name(static_cast<int>(rank)), offset, sizes[i]});
      order.push_back(plan.storage[rank][i]);
      offset += sizes[i];
    }
    total += offset;
  }
  const std::string bytes = encode_metadata(plan.metadata, order, folder, new_save_id());
  write_file_atomically(temporary / ".metadata", bytes);
  return total + bytes.size();
}

}  // namespace

std::uint64_t save(const fs::path& folder, const std::vector<Item>& items, Ranks& ranks) {
  const std::string action = "saving checkpoint " + folder.string() + " failed";
  const fs::path temporary = temporary_folder(folder);
  const auto plans = on_every_rank(ranks, action, [&] { return encode_plan(local_plan(items)); });

  SavePlan plan;  // rank 0's only
  const std::string assignment = on_rank_0(ranks, action, [&] {
    std::vector<std::vector<PlanEntry>> decoded;
    for (const std::string& bytes : plans) decoded.push_back(decode_plan(bytes));
    plan = plan_save(decoded);
    recover_replacement(folder);
    make_fresh_folder(temporary);
    return pack(Json(plan.items));
  });

  try {
    const auto lengths = on_every_rank(ranks, action, [&] {
      const auto rank = static_cast<std::size_t>(ranks.rank());
      const auto chosen = Json::from_msgpack(assignment).at(rank).get<std::vector<std::size_t>>();
      return pack(Json(write_file(temporary / file_name(ranks.rank()), items, chosen)));
    });
    return std::stoull(on_rank_0(ranks, action, [&] {
      const std::uint64_t total = write_metadata(temporary, folder, plan, lengths);
      fsync_folder(temporary);
      put_in_place(folder);
      return std::to_string(total);
    }));
  } catch (const CheckpointError&) {
    // Gives a full disk its space back. The folder may be an old checkpoint by now, swapped out but not removed.
    std::error_code ignored;
    if (ranks.rank() == 0) fs::remove_all(temporary, ignored);
    throw;
  }
}

std::uint64_t save(const fs::path& folder, const std::vector<Item>& items, dist::ProcessGroup& group) {
  GroupRanks ranks(group);
  return save(folder, items, ranks);
}

}  // namespace titan::checkpoint
