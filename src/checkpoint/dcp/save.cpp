#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/fs.h"
#include "base/run_layout.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/checksums.h"
#include "checkpoint/dcp/commit.h"
#include "checkpoint/dcp/planner.h"
#include "checkpoint/dcp/save_id.h"
#include "checkpoint/dcp/write_files.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

std::string pack(const Json& json) {
  std::string bytes;
  Json::to_msgpack(json, bytes);
  return bytes;
}

void make_fresh_folder(const fs::path& folder) {
  if (!folder.parent_path().empty()) fs::create_directories(folder.parent_path());
  fs::remove_all(folder);
  fs::create_directory(folder);
}

// Rank 0's part after all data is on the disk. Gives the total number of bytes.
std::uint64_t write_metadata(const fs::path& temporary, const fs::path& folder, SavePlan& plan,
                             const std::vector<std::string>& written, const std::map<std::string, std::string>& texts) {
  StorageOrder order;
  Checksums checksums{new_save_id(), {}};
  std::uint64_t total = 0;
  for (std::size_t rank = 0; rank < written.size(); ++rank) {
    for (const WrittenFile& file : decode_written(written[rank])) {
      std::uint64_t offset = 0;
      for (std::size_t i = 0; i < file.items.size(); ++i) {
        const auto& entry = plan.storage[rank].at(file.items[i]);
        set_location(plan.metadata, entry, {file.name, offset, file.lengths.at(i)});
        order.push_back(entry);
        offset += file.lengths[i];
      }
      checksums.files[file.name] = file.checksum;
      total += file.checksum.size;
    }
  }
  for (const auto& [name, content] : texts) {
    write_file_atomically(temporary / name, content);
    checksums.files[name] = checksum_of(content);
    total += content.size();
  }
  const std::string bytes = encode_metadata(plan.metadata, order, folder, checksums.save_id);
  checksums.files[layout::kMetadataFile] = checksum_of(bytes);
  write_checksums(temporary, checksums);
  write_file_atomically(temporary / layout::kMetadataFile, bytes);
  return total + bytes.size() + fs::file_size(temporary / kChecksumsFile);
}

}  // namespace

std::uint64_t save(const fs::path& folder, const std::vector<Item>& items, Ranks& ranks, const SaveOptions& options) {
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
    const auto written = on_every_rank(ranks, action, [&] {
      const auto rank = static_cast<std::size_t>(ranks.rank());
      const auto chosen = Json::from_msgpack(assignment).at(rank).get<std::vector<std::size_t>>();
      return encode_written(write_files(temporary, ranks.rank(), items, chosen, options.files_per_rank));
    });
    return std::stoull(on_rank_0(ranks, action, [&] {
      const std::uint64_t total = write_metadata(temporary, folder, plan, written, options.texts);
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

std::uint64_t save(const fs::path& folder, const std::vector<Item>& items, dist::ProcessGroup& group,
                   const SaveOptions& options) {
  GroupRanks ranks(group);
  return save(folder, items, ranks, options);
}

}  // namespace titan::checkpoint
