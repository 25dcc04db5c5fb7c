#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/partial_reads.h"
#include "checkpoint/dcp/planner.h"
#include "checkpoint/format/archive.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/io/checksums.h"
#include "checkpoint/io/on_threads.h"
#include "checkpoint/io/read_error.h"
#include "checkpoint/names/torchtitan_main.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kReaders = 8;  // parallel reads keep the disk busy

// Opens each file of a checkpoint once.
class FileSet {
 public:
  explicit FileSet(fs::path folder) : folder_(std::move(folder)) {}
  // Safe from several threads for a file that is already open.
  const InputFile& get(const std::string& relative_path) {
    const auto found = files_.find(relative_path);
    if (found != files_.end()) return *found->second;
    return *files_.emplace(relative_path, std::make_unique<InputFile>(folder_ / relative_path)).first->second;
  }

 private:
  fs::path folder_;
  std::map<std::string, std::unique_ptr<InputFile>> files_;
};

// Throws if files are truncated, before anything is overwritten; the error names all items that are lost.
void check_ranges(FileSet& files, const Metadata& metadata, const LoadPlan& plan, const std::vector<Item>& items) {
  std::map<std::string, std::string> missing;  // file -> items cut off at its end
  const auto check = [&](const StorageLocation& where, const std::string& fqn) {
    const std::uint64_t size = files.get(where.relative_path).size();
    if (where.offset <= size && where.length <= size - where.offset) return;
    std::string& fqns = missing[where.relative_path];
    if (!fqns.empty()) fqns += ", ";
    fqns += fqn;
  };
  for (const std::size_t index : plan.values) {
    const std::string& fqn = item_fqn(items[index]);
    check(std::get<ValueEntry>(*metadata.find(fqn)).location, fqn);
  }
  for (const ReadBox& box : plan.boxes) check(box.chunk->location, item_fqn(items[box.item]));
  std::string message;
  for (const auto& [file, fqns] : missing)
    message += "\n  " + files.get(file).path().string() + " has " + std::to_string(files.get(file).size()) +
               " bytes and is truncated; lost: " + fqns;
  if (!message.empty()) throw CheckpointError("the checkpoint is damaged:" + message);
}

// Reads a box into `item`. Returns what was read if that is only a part of the stored tensor.
std::optional<PartialRead> read_tensor(FileSet& files, const ReadBox& box, const TensorItem& item) {
  const StorageLocation& where = box.chunk->location;
  const ZipReader archive(files.get(where.relative_path), where.offset, where.length, item.fqn);
  const StoredTensor stored(archive);
  if (stored.sizes() != box.chunk->sizes) archive.fail("the stored tensor has another shape than .metadata says");
  at::Tensor target = item.local.detach();
  for (std::size_t d = 0; d < box.sizes.size(); ++d)
    target = target.narrow(static_cast<std::int64_t>(d), box.start_in_local[d], box.sizes[d]);
  auto part = stored.read_box(box.start_in_chunk, target);
  if (part) part->file = where.relative_path;
  return part;
}

struct ReadItems {
  Values values;
  std::vector<PartialRead> parts;  // still to be verified
  std::set<std::string> tied;      // second names of tied parameters that were read
};

ReadItems read(const fs::path& folder, const Metadata& metadata, const LoadPlan& plan, const std::vector<Item>& items) {
  FileSet files(folder);
  check_ranges(files, metadata, plan, items);
  ReadItems loaded;
  for (const std::size_t index : plan.values) {
    const std::string& fqn = item_fqn(items[index]);
    const StorageLocation& where = std::get<ValueEntry>(*metadata.find(fqn)).location;
    loaded.values[fqn] = read_value_archive(ZipReader(files.get(where.relative_path), where.offset, where.length, fqn));
  }
  std::vector<std::optional<PartialRead>> parts(plan.boxes.size());
  on_threads(kReaders, parts.size(), [&](std::size_t i) {
    const at::NoGradGuard no_grad;  // set per thread
    const ReadBox& box = plan.boxes[i];
    parts[i] = read_tensor(files, box, std::get<TensorItem>(items[box.item]));
  });
  for (auto& part : parts)
    if (part) loaded.parts.push_back(std::move(*part));
  return loaded;
}

// Turns errors in the content into DamagedCheckpoint, but not a mismatch with the wanted items (the plan), nor an error
// of the operating system.
template <typename Step>
auto or_damaged(Step&& step) {
  try {
    return step();
  } catch (const ReadError&) {
    throw;
  } catch (const CheckpointError& error) {
    throw DamagedCheckpoint(error.what());
  }
}

// Renames the keys of a checkpoint of TorchTitan's main branch to ours. Returns true if one of `items` is a tensor that
// was renamed.
bool use_own_names(Metadata& metadata, const std::vector<Item>& items, const std::string& what) {
  std::vector<std::string> wanted;
  std::set<std::string> tensors;
  for (const Item& item : items) {
    wanted.push_back(item_fqn(item));
    if (std::holds_alternative<TensorItem>(item)) tensors.insert(wanted.back());
  }
  const auto names = own_names(metadata.order, wanted, what);
  bool is_wanted = false;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string& key = metadata.order[i];
    if (key == names[i]) continue;
    is_wanted = is_wanted || tensors.contains(names[i]);
    auto entry = metadata.entries.extract(key);
    entry.key() = names[i];
    metadata.entries.insert(std::move(entry));
    if (auto path = metadata.paths.extract(key)) {
      path.key() = names[i];
      metadata.paths.insert(std::move(path));
    }
    key = names[i];
  }
  return is_wanted;
}

// Logs how many of `items` are stored in another dtype than the one that they are loaded as.
void say_casts(const Metadata& metadata, const std::vector<Item>& items, const std::string& what) {
  std::map<std::pair<c10::ScalarType, c10::ScalarType>, std::int64_t> casts;
  for (const Item& item : items) {
    const auto* tensor = std::get_if<TensorItem>(&item);
    const TensorEntry* stored = tensor ? metadata.find_tensor(tensor->fqn) : nullptr;
    if (stored && stored->dtype != tensor->local.scalar_type()) ++casts[{stored->dtype, tensor->local.scalar_type()}];
  }
  for (const auto& [dtypes, count] : casts)
    spdlog::info("{}: {} in {}, loaded as {}", what, counted(count, "tensor"), dtype_name(dtypes.first),
                 dtype_name(dtypes.second));
}

ReadItems load_on_this_rank(const fs::path& folder, const std::vector<Item>& items, int rank,
                            const LoadOptions& options) {
  Metadata metadata = or_damaged([&] {
    auto [checked, checksums] = read_verified_metadata(folder);
    // Rank 0 checks the sizes of all files; below, each rank checks those that it reads.
    const auto wrong = checksums && rank == 0 ? wrong_sizes(folder, *checksums) : std::vector<std::string>();
    if (!wrong.empty()) throw CheckpointError(folder.string() + " is damaged: " + join(wrong, "; "));
    return std::move(checked);
  });
  const bool renamed = use_own_names(metadata, items, folder.string());
  if (renamed && rank == 0)
    spdlog::info("{} has the names of TorchTitan's main branch; they are read as ours (0.2.2's)", folder.string());
  const LoadPlan plan = plan_load(metadata, items, folder.string(), options.all_weights);
  if (rank == 0) say_casts(metadata, items, folder.string());
  ReadItems loaded = or_damaged([&] { return read(folder, metadata, plan, items); });
  for (const Item& item : items) {
    const auto* tensor = std::get_if<TensorItem>(&item);
    if (tensor && !tensor->tied_to.empty() && metadata.find(tensor->fqn)) loaded.tied.insert(tensor->fqn);
  }
  return loaded;
}

}  // namespace

Values load(const fs::path& folder, const std::vector<Item>& items, Ranks& ranks, const LoadOptions& options) {
  const std::string action = "loading checkpoint " + folder.string() + " failed";
  on_rank_0(ranks, action, [&] {
    recover_replacement(folder);
    return std::string();
  });
  const LoadItems own(items);
  Values values;
  std::set<std::string> tied;
  const auto replies = on_every_rank(ranks, action, [&] {
    const at::NoGradGuard no_grad;
    ReadItems loaded = load_on_this_rank(folder, own.items(), ranks.rank(), options);
    values = std::move(loaded.values);
    tied = std::move(loaded.tied);
    return encode_reads(loaded.parts);
  });
  std::vector<PartialRead> parts;
  for (const std::string& reply : replies) {
    auto read = decode_reads(reply);
    parts.insert(parts.end(), std::make_move_iterator(read.begin()), std::make_move_iterator(read.end()));
  }
  verify_reads(folder, action, std::move(parts), ranks);
  if (!own.has_ties()) return values;
  on_every_rank(ranks, action, [&] {
    own.check_ties(tied);
    return std::string();
  });
  return values;
}

Values load(const fs::path& folder, const std::vector<Item>& items, dist::ProcessGroup& group,
            const LoadOptions& options) {
  GroupRanks ranks(group);
  return load(folder, items, ranks, options);
}

}  // namespace titan::checkpoint
