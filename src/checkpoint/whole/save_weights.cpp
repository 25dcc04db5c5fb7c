#include "checkpoint/whole/save_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/fs.h"
#include "base/run_layout.h"
#include "checkpoint/dcp/collective_save.h"
#include "checkpoint/format/cast.h"
#include "checkpoint/format/torch_archive.h"
#include "checkpoint/io/checksums.h"
#include "checkpoint/whole/block_message.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

using Numbers = std::vector<std::int64_t>;

// A box of one tensor that a rank sends. Replicas are left out.
struct Box {
  int rank;
  Numbers offset, sizes;
};

c10::ScalarType stored_dtype(const at::Tensor& tensor, c10::ScalarType dtype) {
  return tensor.is_floating_point() ? dtype : tensor.scalar_type();
}

// Returns fqn -> boxes of all ranks. Collective.
std::map<std::string, std::vector<Box>> gather_boxes(const std::vector<Item>& items,
                                                     const std::vector<std::size_t>& chosen, Ranks& ranks) {
  nlohmann::json json = nlohmann::json::array();
  for (const std::size_t index : chosen)
    if (const auto* tensor = std::get_if<TensorItem>(&items.at(index)))
      json.push_back({tensor->fqn, tensor->spec.offset, tensor->spec.local_shape});
  std::string bytes;
  nlohmann::json::to_msgpack(json, bytes);
  std::map<std::string, std::vector<Box>> boxes;
  const auto replies = ranks.all_gather(bytes);
  for (std::size_t rank = 0; rank < replies.size(); ++rank)
    for (const nlohmann::json& box : nlohmann::json::from_msgpack(replies[rank]))
      boxes[box.at(0).get<std::string>()].push_back(
          {static_cast<int>(rank), box.at(1).get<Numbers>(), box.at(2).get<Numbers>()});
  return boxes;
}

// Rows [begin, end) of a full tensor.
struct Rows {
  std::int64_t begin, end;
};

// Returns the rows of the block that the box has.
Rows common_rows(const Box& box, const Rows& block) {
  if (box.offset.empty()) return block;
  return {std::max(box.offset[0], block.begin), std::min(box.offset[0] + box.sizes[0], block.end)};
}

// Returns rows of this rank's box, with dim 0, cast, on the host.
at::Tensor rows_of(const TensorItem& item, const Rows& rows, c10::ScalarType dtype) {
  at::Tensor part = item.local.detach();
  if (part.dim() == 0) part = part.unsqueeze(0);
  const std::int64_t offset = item.spec.offset.empty() ? 0 : item.spec.offset[0];
  part = part.narrow(0, rows.begin - offset, rows.end - rows.begin);
  return cast(part, stored_dtype(part, dtype)).to(at::kCPU).contiguous();
}

// The file, on rank 0. What fails is kept until the ranks ask for it, as they wait in a collective.
class ModelFile {
 public:
  ModelFile(const fs::path& path, const std::vector<Item>& items, c10::ScalarType dtype) : out_(path) {
    std::vector<std::pair<std::string, TensorDescription>> described;
    for (const Item& item : items) {
      const auto* tensor = std::get_if<TensorItem>(&item);
      if (tensor == nullptr) continue;
      const std::string& owner = tensor->tied_to.empty() ? tensor->fqn : tensor->tied_to;
      const std::string key = std::to_string(keys_.emplace(owner, keys_.size()).first->second);
      described.emplace_back(tensor->fqn,
                             describe_contiguous(stored_dtype(tensor->local, dtype), tensor->spec.global_shape, key));
    }
    archive_.emplace(out_, pickle_state_dict(described));
  }

  void begin(const TensorItem& tensor, std::uint64_t bytes) {
    archive_->begin_storage(std::to_string(keys_.at(tensor.fqn)), bytes);
  }
  void append(const at::Tensor& block) { archive_->append(block.const_data_ptr(), block.nbytes()); }
  void end() { archive_->end_storage(); }
  FileChecksum finish() {
    archive_->finish();
    const FileChecksum checksum{out_.position(), out_.crc()};
    out_.finish();
    return checksum;
  }

 private:
  OutputFile out_;
  std::map<std::string, std::size_t> keys_;  // FQN of a parameter -> its storage
  std::optional<TorchArchiveWriter> archive_;
};

// Sends the tensors to rank 0, in the order of `items`, and writes them there. Every step is collective, and all ranks
// leave it at the same place: `failed_` on one rank makes the next exchange of all ranks the last.
class Gatherer {
 public:
  Gatherer(const std::vector<Item>& items, c10::ScalarType dtype, Ranks& ranks, std::int64_t block_bytes)
      : items_(items), dtype_(dtype), ranks_(ranks), block_bytes_(block_bytes) {}

  // Returns the file's checksum; meaningless on other ranks than 0. Throws what failed on this rank.
  FileChecksum write(const fs::path& path, const std::vector<std::size_t>& chosen) {
    const auto boxes = gather_boxes(items_, chosen, ranks_);
    if (ranks_.rank() == 0) attempt([&] { file_ = std::make_unique<ModelFile>(path, items_, dtype_); });
    for (const Item& item : items_) {
      const auto* tensor = std::get_if<TensorItem>(&item);
      if (tensor == nullptr || !tensor->tied_to.empty()) continue;
      const auto found = boxes.find(tensor->fqn);
      if (!write_tensor(*tensor, found == boxes.end() ? std::vector<Box>() : found->second)) break;
    }
    if (!failure_.empty()) throw CheckpointError(failure_);
    return file_ && !others_failed_ ? file_->finish() : FileChecksum{};
  }

 private:
  template <typename Step>
  void attempt(Step&& step) {
    if (!failure_.empty()) return;
    try {
      step();
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }

  // Returns false if the save is to end, on all ranks.
  bool write_tensor(const TensorItem& tensor, const std::vector<Box>& boxes) {
    const Numbers& shape = tensor.spec.global_shape;
    const std::int64_t rows = shape.empty() ? 1 : shape[0];
    Numbers block_shape = shape.empty() ? Numbers{1} : shape;
    std::int64_t row_bytes = static_cast<std::int64_t>(c10::elementSize(stored_dtype(tensor.local, dtype_)));
    for (std::size_t d = 1; d < shape.size(); ++d) row_bytes *= shape[d];
    const std::int64_t at_once = std::max<std::int64_t>(block_bytes_ / std::max<std::int64_t>(row_bytes, 1), 1);
    if (file_) attempt([&] { file_->begin(tensor, static_cast<std::uint64_t>(rows * row_bytes)); });
    for (std::int64_t begin = 0; begin < rows; begin += at_once) {
      const Rows block{begin, std::min(begin + at_once, rows)};
      block_shape[0] = block.end - block.begin;
      at::Tensor gathered;
      if (file_)
        attempt([&] { gathered = at::empty(block_shape, at::TensorOptions(stored_dtype(tensor.local, dtype_))); });
      for (const Box& box : boxes)
        if (!gather(tensor, box, block, gathered)) return false;
      if (file_) attempt([&] { file_->append(gathered); });
    }
    if (file_) attempt([&] { file_->end(); });
    return is_block(ranks_.broadcast(failure_.empty() ? make_block("") : make_error(""), 0));
  }

  // Copies the box's part of the block into `gathered` on rank 0. Returns false if its rank could not send it.
  bool gather(const TensorItem& tensor, const Box& box, const Rows& block, at::Tensor& gathered) {
    const Rows rows = common_rows(box, block);
    if (rows.begin >= rows.end || std::ranges::count(box.sizes, 0) > 0) return true;
    if (box.rank == 0) {
      if (file_) attempt([&] { put(gathered, box, block, rows, rows_of(tensor, rows, dtype_)); });
      return true;
    }
    std::string bytes;
    if (ranks_.rank() == box.rank) {
      attempt([&] {
        const at::Tensor part = rows_of(tensor, rows, dtype_);
        bytes.reserve(part.nbytes() + 1);
        bytes.assign(static_cast<const char*>(part.const_data_ptr()), part.nbytes());
      });
      bytes = failure_.empty() ? make_block(std::move(bytes)) : make_error(failure_);
    }
    bytes = ranks_.broadcast(bytes, box.rank);
    others_failed_ = !is_block(bytes);
    if (others_failed_) return false;
    if (!file_) return true;
    attempt([&] {
      Numbers shape = box.sizes.empty() ? Numbers{1} : box.sizes;
      shape[0] = rows.end - rows.begin;
      put(gathered, box, block, rows,
          at::from_blob(bytes.data(), shape, at::TensorOptions(stored_dtype(tensor.local, dtype_))));
    });
    return true;
  }

  static void put(const at::Tensor& gathered, const Box& box, const Rows& block, const Rows& rows,
                  const at::Tensor& part) {
    at::Tensor target = gathered.narrow(0, rows.begin - block.begin, rows.end - rows.begin);
    for (std::size_t d = 1; d < box.offset.size(); ++d)
      target = target.narrow(static_cast<std::int64_t>(d), box.offset[d], box.sizes[d]);
    target.copy_(part);
  }

  const std::vector<Item>& items_;
  c10::ScalarType dtype_;
  Ranks& ranks_;
  std::int64_t block_bytes_;
  std::unique_ptr<ModelFile> file_;  // null except on rank 0
  std::string failure_;              // what failed on this rank
  bool others_failed_ = false;
};

std::uint64_t write_small_files(const fs::path& folder, const FileChecksum& model, const SaveOptions& options) {
  Checksums checksums{"", {{layout::kModelFile, model}}};
  std::uint64_t total = model.size;
  for (const auto& [name, content] : options.texts) {
    write_file_atomically(folder / name, content);
    checksums.files[name] = checksum_of(content);
    total += content.size();
  }
  write_checksums(folder, checksums);
  return total + fs::file_size(folder / kChecksumsFile);
}

}  // namespace

std::uint64_t save_weights(const fs::path& folder, const std::vector<Item>& items, c10::ScalarType dtype, Ranks& ranks,
                           const SaveOptions& options, std::int64_t block_bytes) {
  FileChecksum checksum;
  SaveSteps steps;
  steps.prepare = [&](const fs::path&) { recover_replacement(folder); };
  steps.write = [&](const fs::path& temporary, const std::vector<std::size_t>& chosen) {
    const at::NoGradGuard no_grad;
    checksum = Gatherer(items, dtype, ranks, block_bytes).write(temporary / layout::kModelFile, chosen);
    return std::string();
  };
  steps.commit = [&](const fs::path& temporary, const std::vector<std::string>& /*written*/, SavePlan& /*plan*/) {
    return write_small_files(temporary, checksum, options);
  };
  return collective_save(folder, "saving " + (folder / layout::kModelFile).string() + " failed", items, ranks, steps);
}

}  // namespace titan::checkpoint
