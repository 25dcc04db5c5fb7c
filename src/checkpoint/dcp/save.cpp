#include "base/fs.h"
#include "base/run_layout.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/collective_save.h"
#include "checkpoint/dcp/save_id.h"
#include "checkpoint/dcp/write_files.h"
#include "checkpoint/io/checksums.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

// Returns the bytes of the tensors that all ranks write; their headers and the values are small beside them.
std::uint64_t bytes_of(const SavePlan& plan) {
  std::uint64_t total = 0;
  for (const auto& [key, entry] : plan.metadata.entries) {
    const auto* tensor = std::get_if<TensorEntry>(&entry);
    if (!tensor) continue;
    std::uint64_t elements = 1;
    for (const std::int64_t size : tensor->size) elements *= static_cast<std::uint64_t>(size);
    total += elements * c10::elementSize(tensor->dtype);
  }
  return total;
}

// Writes rank 0's files after all data is on disk. Returns the total number of bytes.
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
  SaveSteps steps;
  if (options.check_room) steps.check = [&](const SavePlan& plan) { options.check_room(bytes_of(plan)); };
  steps.prepare = [&](const fs::path&) { recover_replacement(folder); };
  steps.write = [&](const fs::path& temporary, const std::vector<std::size_t>& chosen) {
    return encode_written(write_files(temporary, ranks.rank(), items, chosen, options.files_per_rank));
  };
  steps.commit = [&](const fs::path& temporary, const std::vector<std::string>& written, SavePlan& plan) {
    return write_metadata(temporary, folder, plan, written, options.texts);
  };
  return collective_save(folder, "saving checkpoint " + folder.string() + " failed", items, ranks, steps);
}

std::uint64_t save(const fs::path& folder, const std::vector<Item>& items, dist::ProcessGroup& group,
                   const SaveOptions& options) {
  GroupRanks ranks(group);
  return save(folder, items, ranks, options);
}

}  // namespace titan::checkpoint
