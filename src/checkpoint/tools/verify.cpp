// Verifies the checksum of a file and those of its records in one pass.
#include "checkpoint/tools/verify.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/format/archive.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/hugging_face/hugging_face_files.h"
#include "checkpoint/io/checksums.h"
#include "checkpoint/io/crc32.h"
#include "checkpoint/tools/convert.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

using Faults = std::vector<std::string>;

void keep(std::vector<Fault>& all, const std::string& file, Faults faults) {
  for (std::string& text : faults) all.push_back({file, std::move(text)});
}

// A record's payload in a file, with the expected checksum.
struct Record {
  Piece piece;
  std::string what;
};

// Runs `step`; turns its error into a fault.
template <typename Step>
void or_fault(Faults& faults, Step&& step) {
  try {
    step();
  } catch (const std::exception& error) {
    faults.emplace_back(error.what());
  }
}

// Verifies the records of a file. Returns the checksum of the full file.
std::uint32_t read_file_and_records(const InputFile& file, std::vector<Record> records, Faults& faults) {
  std::sort(records.begin(), records.end(),
            [](const Record& a, const Record& b) { return a.piece.begin < b.piece.begin; });
  std::uint32_t crc = 0;
  std::uint64_t at = 0;
  const auto pass = [&](std::uint64_t size) {
    const std::uint32_t piece = crc_of_range(file, at, size);
    crc = crc32_combine(crc, piece, size);
    at += size;
    return piece;
  };
  for (const Record& record : records) {
    if (record.piece.begin < at) {
      faults.push_back(record.what + " overlaps the record before it");
      continue;
    }
    pass(record.piece.begin - at);
    if (pass(record.piece.size) != record.piece.crc)
      faults.push_back(record.what + " does not match its checksum: the file was changed or damaged");
  }
  pass(file.size() - at);
  return crc;
}

void add_records(const ZipReader& archive, std::vector<Record>& records) {
  for (const auto& [name, record] : archive.records())
    records.push_back({{archive.payload_offset(record), record.size, record.crc}, archive.what() + ", record " + name});
}

bool overlap(const StoredChunk& a, const StoredChunk& b) {
  for (std::size_t d = 0; d < a.offsets.size(); ++d) {
    if (a.offsets[d] >= b.offsets[d] + b.sizes[d] || b.offsets[d] >= a.offsets[d] + a.sizes[d]) return false;
  }
  return true;
}

void check_boxes(const std::string& fqn, const TensorEntry& tensor, Faults& faults) {
  std::vector<const StoredChunk*> boxes;  // boxes with elements, sorted by first row
  std::int64_t covered = 0, total = 1;
  for (const std::int64_t size : tensor.size) total *= size;
  for (const StoredChunk& chunk : tensor.chunks) {
    std::int64_t numel = 1;
    for (const std::int64_t size : chunk.sizes) numel *= size;
    covered += numel;
    if (numel > 0) boxes.push_back(&chunk);
  }
  if (covered != total)
    faults.push_back(fqn +
                     (tensor.chunks.size() == 1 ? ": its 1 box holds "
                                                : ": its " + std::to_string(tensor.chunks.size()) + " boxes hold ") +
                     std::to_string(covered) + " elements together, a tensor of shape " +
                     dist::shape_text(tensor.size) + " has " + std::to_string(total));
  if (tensor.size.empty()) return;
  std::sort(boxes.begin(), boxes.end(),
            [](const StoredChunk* a, const StoredChunk* b) { return a->offsets[0] < b->offsets[0]; });
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    for (std::size_t j = i + 1; j < boxes.size() && boxes[j]->offsets[0] < boxes[i]->offsets[0] + boxes[i]->sizes[0];
         ++j) {
      if (!overlap(*boxes[i], *boxes[j])) continue;
      faults.push_back(fqn + ": the boxes at " + dist::shape_text(boxes[i]->offsets) + " and at " +
                       dist::shape_text(boxes[j]->offsets) + " overlap");
      return;
    }
  }
}

// Verifies the checksum of a file. One that has another size is not read; wrong_sizes() reports it.
void verify_bytes(const fs::path& folder, const std::string& name, const FileChecksum& expected, Faults& faults) {
  if (!fs::exists(folder / name)) return;
  const InputFile file(folder / name);
  if (file.size() != expected.size) return;
  std::string fault = compare_checksum(name, crc_of_range(file, 0, file.size()), expected);
  if (!fault.empty()) faults.push_back(std::move(fault));
}

class DcpVerifier {
 public:
  explicit DcpVerifier(fs::path folder) : folder_(std::move(folder)) {}

  std::vector<Fault> run() {
    std::optional<VerifiedMetadata> read;
    Faults of_folder;
    or_fault(of_folder, [&] { read = read_verified_metadata(folder_); });
    if (read) {
      if (read->checksums) {
        checksums_ = std::move(*read->checksums);
        Faults wrong = wrong_sizes(folder_, checksums_);
        std::move(wrong.begin(), wrong.end(), std::back_inserter(of_folder));
      }
      sort_by_file(read->metadata, of_folder);
    }
    keep(all_, "", std::move(of_folder));
    for (const auto& [name, items] : items_) {
      Faults faults;
      or_fault(faults, [&] { verify_file(name, items, faults); });
      keep(all_, name, std::move(faults));
    }
    for (const auto& [name, expected] : checksums_.files) {
      if (items_.contains(name) || name == layout::kMetadataFile) continue;
      Faults faults;
      or_fault(faults, [&] { verify_bytes(folder_, name, expected, faults); });
      keep(all_, name, std::move(faults));
    }
    return std::move(all_);
  }

 private:
  struct StoredItem {
    std::string fqn;
    StorageLocation where;
    const TensorEntry* tensor = nullptr;  // null for a value
    const StoredChunk* chunk = nullptr;
  };

  void sort_by_file(const Metadata& metadata, Faults& faults) {
    for (const std::string& fqn : metadata.order) {
      const Metadata::Entry& entry = *metadata.find(fqn);
      if (const auto* tensor = std::get_if<TensorEntry>(&entry)) {
        check_boxes(fqn, *tensor, faults);
        for (const StoredChunk& chunk : tensor->chunks)
          items_[chunk.location.relative_path].push_back({fqn, chunk.location, tensor, &chunk});
      } else {
        const StorageLocation& where = std::get<ValueEntry>(entry).location;
        items_[where.relative_path].push_back({fqn, where, nullptr, nullptr});
      }
    }
  }

  void verify_file(const std::string& name, const std::vector<StoredItem>& items, Faults& faults) {
    const InputFile file(folder_ / name);
    std::vector<Record> records;
    for (const StoredItem& item : items) {
      or_fault(faults, [&] {
        const ZipReader archive(file, item.where.offset, item.where.length, item.fqn);
        add_records(archive, records);
        check_content(archive, item);
      });
    }
    const std::uint32_t crc = read_file_and_records(file, std::move(records), faults);
    const auto expected = checksums_.files.find(name);
    if (expected == checksums_.files.end()) return;
    std::string fault = compare_checksum(name, crc, expected->second);
    if (!fault.empty()) faults.push_back(std::move(fault));
  }

  static void check_content(const ZipReader& archive, const StoredItem& item) {
    if (item.tensor == nullptr) {
      read_value_archive(archive);
      return;
    }
    const StoredTensor stored(archive);
    if (stored.sizes() != item.chunk->sizes)
      archive.fail("the stored tensor has the shape " + dist::shape_text(stored.sizes()) + ", .metadata says " +
                   dist::shape_text(item.chunk->sizes));
    if (stored.dtype() != item.tensor->dtype) archive.fail("the stored tensor has another dtype than .metadata says");
  }

  fs::path folder_;
  Checksums checksums_;
  std::map<std::string, std::vector<StoredItem>> items_;
  std::vector<Fault> all_;
};

std::vector<Fault> verify_safetensors(const fs::path& path) {
  std::vector<Fault> all;
  const bool is_folder = fs::is_directory(path);
  const fs::path folder = is_folder ? path : path.parent_path();
  std::optional<Checksums> checksums;
  Faults of_folder;
  or_fault(of_folder, [&] { checksums = read_checksums(folder); });
  std::map<std::string, std::string> file_of;
  std::vector<fs::path> files;
  or_fault(of_folder, [&] { files = WeightFiles(path).files(); });
  for (const fs::path& file : files) {
    or_fault(of_folder, [&] {
      for (const auto& entry : read_safetensors_header(file)) {
        if (!file_of.emplace(entry.name, file.filename()).second)
          of_folder.push_back(entry.name + " is in two files of " + folder.string());
      }
    });
  }
  if (is_folder && fs::exists(folder / kHuggingFaceIndex))
    or_fault(of_folder, [&] {
      if (read_hugging_face_index(folder / kHuggingFaceIndex) != file_of)
        of_folder.push_back(std::string(kHuggingFaceIndex) + " names other tensors or other files than there are");
    });
  if (checksums && !is_folder)
    std::erase_if(checksums->files, [&](const auto& file) { return file.first != path.filename(); });
  if (checksums) {
    Faults wrong = wrong_sizes(folder, *checksums);
    std::move(wrong.begin(), wrong.end(), std::back_inserter(of_folder));
  }
  keep(all, "", std::move(of_folder));
  if (!checksums) return all;
  for (const auto& [name, expected] : checksums->files) {
    Faults faults;
    or_fault(faults, [&] { verify_bytes(folder, name, expected, faults); });
    keep(all, name, std::move(faults));
  }
  return all;
}

std::vector<Fault> verify_torch(const fs::path& given) {
  const fs::path path = torch_file(given);
  Faults faults;
  or_fault(faults, [&] {
    open_torch_source(path);
    const InputFile file(path);
    std::vector<Record> records;
    add_records(ZipReader(file, 0, file.size(), path.filename(), kMaxTorchRecords), records);
    const std::uint32_t crc = read_file_and_records(file, std::move(records), faults);
    if (path == given) return;
    const auto checksums = read_checksums(given);
    if (!checksums || !checksums->files.contains(path.filename())) return;
    std::string fault = compare_checksum(path.filename(), crc, checksums->files.at(path.filename()));
    if (!fault.empty()) faults.push_back(std::move(fault));
  });
  std::vector<Fault> all;
  keep(all, path.filename(), std::move(faults));
  return all;
}

}  // namespace

std::vector<Fault> verify_checkpoint(const fs::path& path) {
  switch (detect_kind(path)) {
    case CheckpointKind::kDcp:
      return DcpVerifier(path).run();
    case CheckpointKind::kHuggingFace:
      return verify_safetensors(path);
    case CheckpointKind::kTorch:
      return verify_torch(path);
  }
  return {};
}

}  // namespace titan::checkpoint
