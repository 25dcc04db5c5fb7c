#include "checkpoint/whole/load_weights.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/process/common_error.h"
#include "base/text.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/whole/block_message.h"
#include "checkpoint/whole/weights_file.h"
#include "facts/adapter_names.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMostNames = 20;  // names of one kind that an error lists

// A tensor of the file, and the item that it fills.
struct Part {
  std::string fqn;
  std::size_t source = 0;  // index into the source's tensors, on rank 0
  TensorInfo info;         // its name is that in the file
  std::int64_t block = 1;  // rows that are sent at once
};

std::string encode(const std::vector<Part>& parts) {
  nlohmann::json json = nlohmann::json::array();
  for (const Part& part : parts)
    json.push_back({part.fqn, part.source, part.info.name, dtype_name(part.info.dtype), part.info.shape, part.block});
  std::string bytes;
  nlohmann::json::to_msgpack(json, bytes);
  return bytes;
}

std::vector<Part> decode(const std::string& bytes) {
  std::vector<Part> parts;
  for (const nlohmann::json& json : nlohmann::json::from_msgpack(bytes))
    parts.push_back({json.at(0).get<std::string>(),
                     json.at(1).get<std::size_t>(),
                     {json.at(2).get<std::string>(), *dtype_from_name(json.at(3).get<std::string>()),
                      json.at(4).get<std::vector<std::int64_t>>()},
                     json.at(5).get<std::int64_t>()});
  return parts;
}

std::string list(const char* what, const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), kMostNames); ++i) text += std::string("\n  ") + what + lines[i];
  if (lines.size() > kMostNames) text += "\n  and " + std::to_string(lines.size() - kMostNames) + " more";
  return text;
}

// Chooses the tensor of the file for each item. Runs on rank 0, whose items are those of all ranks.
class Matcher {
 public:
  Matcher(const fs::path& file, const TensorSource& source, std::int64_t block_bytes)
      : file_(file), source_(source), block_bytes_(block_bytes) {
    for (std::size_t i = 0; i < source.tensors().size(); ++i) {
      const std::string name = without_wrappers(source.tensors()[i].name);
      if (!stored_.emplace(name, i).second) throw CheckpointError(file.string() + " holds " + name + " twice");
    }
  }

  std::vector<Part> match(const std::vector<Item>& items) {
    for (const Item& item : items)
      if (const auto* tensor = std::get_if<TensorItem>(&item)) wanted_.emplace(tensor->fqn, tensor);
    std::vector<Part> parts;
    for (const Item& item : items)
      if (const auto* tensor = std::get_if<TensorItem>(&item)) add(*tensor, parts);
    check();
    return parts;
  }

 private:
  // Returns the tensor under the item's own name, or else under another name of the same parameter.
  std::optional<std::size_t> find(const TensorItem& item) const {
    if (const auto own = stored_.find(item.fqn); own != stored_.end()) return own->second;
    for (const auto& [fqn, other] : wanted_)
      if (other->tied_to == item.fqn && stored_.contains(fqn)) return stored_.at(fqn);
    return std::nullopt;
  }

  void add(const TensorItem& item, std::vector<Part>& parts) {
    const auto source = find(item);
    if (!source) {
      // A file of the model without adapters, as their training begins with, has none of them.
      const bool may_lack = !item.tied_to.empty() || (is_adapter_name(item.fqn) && !has_adapters());
      if (!may_lack) missing_.push_back(item.fqn);
      return;
    }
    const TensorInfo& info = source_.tensors()[*source];
    if (info.shape != item.spec.global_shape) {
      wrong_.push_back(item.fqn + ": expected shape " + dist::shape_text(item.spec.global_shape) + ", the file has " +
                       dist::shape_text(info.shape));
      return;
    }
    parts.push_back({item.fqn, *source, info, rows_at_once(*source)});
  }

  bool has_adapters() const {
    return std::ranges::any_of(stored_, [](const auto& each) { return is_adapter_name(each.first); });
  }

  std::int64_t rows_at_once(std::size_t index) const {
    const TensorInfo& info = source_.tensors()[index];
    if (!source_.reads_by_rows(index)) return std::max<std::int64_t>(info.rows(), 1);
    const auto row_bytes = info.elements_per_row() * static_cast<std::int64_t>(c10::elementSize(info.dtype));
    return std::max<std::int64_t>(block_bytes_ / std::max<std::int64_t>(row_bytes, 1), 1);
  }

  void check() const {
    std::vector<std::string> unexpected, missing;
    for (const auto& [name, index] : stored_) {
      // Older files contain the rotary frequencies, which follow from the configuration.
      if (!wanted_.contains(name) && name != "rope.freqs") unexpected.push_back(name);
    }
    if (missing_.empty() && wrong_.empty() && unexpected.empty()) return;
    for (const std::string& name : missing_) {
      const auto near = nearest_name(name, unexpected);
      missing.push_back(name + (near ? " (the file has " + *near + ")" : ""));
    }
    const auto count = [](const std::vector<std::string>& names, const char* what) {
      return std::to_string(names.size()) + what;
    };
    throw CheckpointError(file_.string() + " does not fit the model: " + count(missing_, " missing, ") +
                          count(unexpected, " unexpected, ") + count(wrong_, " of another shape") +
                          list("missing: ", missing) + list("unexpected: ", unexpected) + list("", wrong_) + hint());
  }

  std::string hint() const {
    if (!has_hugging_face_names(source_)) return "";
    return file_.extension() == ".safetensors"
               ? "\nIts names are Hugging Face's: set checkpoint.initial_load_in_hf = true"
               : "\nIts names are Hugging Face's: save the model as safetensors, and set "
                 "checkpoint.initial_load_in_hf = true";
  }

  const fs::path& file_;
  const TensorSource& source_;
  std::int64_t block_bytes_;
  std::map<std::string, std::size_t> stored_;        // by name, without the parts of wrappers
  std::map<std::string, const TensorItem*> wanted_;  // by FQN
  std::vector<std::string> missing_, wrong_;
};

// Returns the rows, or the error as a message too: rank 0 must take part in the broadcast.
std::string read_block(TensorSource& source, std::size_t index, std::int64_t begin, std::int64_t end) {
  try {
    const at::Tensor rows = source.read(index, begin, end);
    std::string bytes;
    bytes.reserve(rows.nbytes() + 1);
    bytes.append(static_cast<const char*>(rows.const_data_ptr()), rows.nbytes());
    return make_block(std::move(bytes));
  } catch (const std::exception& error) {
    return make_error(error.what());
  }
}

// Copies the rows [begin, begin + rows.size(0)) of the full tensor into the part of them that this rank holds.
void copy_rows(const TensorItem& item, std::int64_t begin, at::Tensor rows) {
  at::Tensor local = item.local.detach();
  if (local.numel() == 0) return;
  const dist::ShardSpec& spec = item.spec;
  if (local.dim() == 0) {
    local.copy_(rows.squeeze(0));
    return;
  }
  const std::int64_t first = std::max(begin, spec.offset[0]);
  const std::int64_t last = std::min(begin + rows.size(0), spec.offset[0] + spec.local_shape[0]);
  if (first >= last) return;
  rows = rows.narrow(0, first - begin, last - first);
  for (std::size_t d = 1; d < spec.offset.size(); ++d)
    rows = rows.narrow(static_cast<std::int64_t>(d), spec.offset[d], spec.local_shape[d]);
  local.narrow(0, first - spec.offset[0], last - first).copy_(rows);
}

// Sends and takes the rows of one tensor. `item`: null if this rank has none of it.
class Receiver {
 public:
  Receiver(std::string action, Ranks& ranks, TensorSource* source)
      : action_(std::move(action)), ranks_(ranks), source_(source) {}

  void receive(const Part& part, const TensorItem* item) {
    for (std::int64_t begin = 0; begin < part.info.rows(); begin += part.block) {
      const std::int64_t end = std::min(begin + part.block, part.info.rows());
      std::string bytes = ranks_.broadcast(source_ ? read_block(*source_, part.source, begin, end) : "", 0);
      if (!is_block(bytes)) throw CheckpointError(common_error(action_ + ": " + error_of(bytes)));
      if (item != nullptr && !failure_) take(part, *item, begin, end, bytes);
    }
  }
  // Call after the last tensor. Throws what failed on this rank.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // A failure must not keep this rank from the next broadcast.
  void take(const Part& part, const TensorItem& item, std::int64_t begin, std::int64_t end, std::string& bytes) {
    try {
      std::vector<std::int64_t> shape = part.info.shape.empty() ? std::vector<std::int64_t>{1} : part.info.shape;
      shape[0] = end - begin;
      copy_rows(item, begin, at::from_blob(bytes.data(), shape, at::TensorOptions(part.info.dtype)));
    } catch (const std::exception&) {
      failure_ = std::current_exception();
    }
  }

  std::string action_;
  Ranks& ranks_;
  TensorSource* source_;  // null except on rank 0
  std::exception_ptr failure_;
};

// Logs the casts: "12 tensors from bfloat16 to float32".
void log_loaded(const fs::path& file, const std::vector<Part>& parts, const std::vector<Item>& items) {
  std::map<std::string, c10::ScalarType> targets;
  for (const Item& item : items)
    if (const auto* tensor = std::get_if<TensorItem>(&item)) targets[tensor->fqn] = tensor->local.scalar_type();
  std::map<std::string, std::int64_t> casts;
  for (const Part& part : parts)
    if (const auto target = targets.at(part.fqn); target != part.info.dtype)
      ++casts["from " + dtype_name(part.info.dtype) + " to " + dtype_name(target)];
  std::vector<std::string> texts;
  for (const auto& [cast, count] : casts) texts.push_back(counted(count, "tensor") + " " + cast);
  spdlog::info("Loaded {} from {}{}{}", counted(static_cast<std::int64_t>(parts.size()), "tensor"), file.string(),
               texts.empty() ? "" : ", converted ", join(texts, ", "));
}

}  // namespace

void load_weights(const fs::path& file, const std::vector<Item>& items, Ranks& ranks, std::int64_t block_bytes) {
  const at::NoGradGuard no_grad;
  const std::string action = "loading " + file.string() + " failed";
  const LoadItems own(items);
  std::unique_ptr<TensorSource> source;
  const auto parts = decode(on_rank_0(ranks, action, [&] {
    source = open_weights_file(file);
    return encode(Matcher(file, *source, block_bytes).match(own.items()));
  }));
  std::map<std::string, const TensorItem*> by_fqn;
  for (const Item& item : own.items())
    if (const auto* tensor = std::get_if<TensorItem>(&item)) by_fqn[tensor->fqn] = tensor;
  Receiver receiver(action, ranks, source.get());
  std::set<std::string> tied;
  for (const Part& part : parts) {
    const auto item = by_fqn.find(part.fqn);
    receiver.receive(part, item == by_fqn.end() ? nullptr : item->second);
    if (item != by_fqn.end() && !item->second->tied_to.empty()) tied.insert(part.fqn);
  }
  on_every_rank(ranks, action, [&] {
    receiver.rethrow();
    if (source) source->verify();
    own.check_ties(tied);
    return std::string();
  });
  if (ranks.rank() == 0) log_loaded(file, parts, items);
}

}  // namespace titan::checkpoint
