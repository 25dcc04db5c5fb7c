#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "checkpoint/dcp/planner.h"
#include "checkpoint/format/dtype.h"

namespace titan::checkpoint {
namespace {

using Json = nlohmann::json;

void check_tensor(const TensorItem& item) {
  const dist::ShardSpec& spec = item.spec;
  if (!item.local.defined()) throw CheckpointError(item.fqn + " has no tensor");
  if (item.local.is_meta()) throw CheckpointError(item.fqn + " is still on the meta device; expected cpu or cuda");
  if (item.local.sizes() != at::IntArrayRef(spec.local_shape))
    throw CheckpointError(item.fqn + " has shape " + dist::shape_text(item.local.sizes()) + ", its shard spec says " +
                          dist::shape_text(spec.local_shape));
  const std::size_t dims = spec.global_shape.size();
  bool inside = spec.offset.size() == dims && spec.local_shape.size() == dims;
  for (std::size_t d = 0; inside && d < dims; ++d)
    inside =
        spec.offset[d] >= 0 && spec.local_shape[d] >= 0 && spec.offset[d] + spec.local_shape[d] <= spec.global_shape[d];
  if (!inside)
    throw CheckpointError(item.fqn + ": the box at " + dist::shape_text(spec.offset) + " of shape " +
                          dist::shape_text(spec.local_shape) + " is not inside the tensor of shape " +
                          dist::shape_text(spec.global_shape));
  if (!item.sharded && spec != dist::ShardSpec::replicated(spec.global_shape))
    throw CheckpointError(item.fqn + " is not sharded, yet this rank holds only a part of it");
  dtype_name(item.local.scalar_type());
}

// Weight of an item by DCP's rule: the bytes of the full tensor, not of the chunk; 1 if it has no known size.
std::int64_t weight(const PlanEntry& entry) {
  if (entry.is_value) return 1;
  return std::max<std::int64_t>(
      c10::multiply_integers(entry.spec.global_shape) * static_cast<std::int64_t>(c10::elementSize(entry.dtype)), 1);
}

struct ItemKey {
  std::string fqn;
  std::vector<std::int64_t> offset;  // empty for values
  auto operator<=>(const ItemKey&) const = default;
};

ItemKey key_of(const PlanEntry& entry) {
  return {entry.fqn, entry.is_value ? std::vector<std::int64_t>{} : entry.spec.offset};
}

void check_agreement(const PlanEntry& first, const PlanEntry& other, std::size_t rank) {
  const bool same_kind = first.is_value == other.is_value && first.sharded == other.sharded;
  if (!same_kind)
    throw CheckpointError(first.fqn + " is sharded, whole or a value on some ranks and something else on rank " +
                          std::to_string(rank));
  if (first.is_value) return;
  if (first.dtype != other.dtype || first.spec.global_shape != other.spec.global_shape)
    throw CheckpointError(first.fqn + " is " + dtype_name(first.dtype) + " " +
                          dist::shape_text(first.spec.global_shape) + " on one rank and " + dtype_name(other.dtype) +
                          " " + dist::shape_text(other.spec.global_shape) + " on rank " + std::to_string(rank));
}

// Returns the rank that writes each item.
std::map<ItemKey, std::size_t> choose_writers(const std::vector<std::vector<PlanEntry>>& plans) {
  struct Candidate {
    const PlanEntry* entry;
    std::vector<std::size_t> ranks;
  };
  std::map<ItemKey, std::size_t> index;
  std::vector<Candidate> candidates;  // in the order of first appearance
  std::map<std::string, const PlanEntry*> by_fqn;
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    for (const PlanEntry& entry : plans[rank]) {
      if (entry.absent) continue;
      check_agreement(*by_fqn.emplace(entry.fqn, &entry).first->second, entry, rank);
      const auto [found, is_new] = index.emplace(key_of(entry), candidates.size());
      if (is_new) candidates.push_back({&entry, {}});
      Candidate& candidate = candidates[found->second];
      if (!entry.is_value && candidate.entry->spec.local_shape != entry.spec.local_shape)
        throw CheckpointError(entry.fqn + ": two ranks hold boxes of different shapes at offset " +
                              dist::shape_text(entry.spec.offset));
      candidate.ranks.push_back(rank);
    }
  }
  std::vector<std::int64_t> load(plans.size(), 0);
  std::map<ItemKey, std::size_t> writers;
  for (const Candidate& candidate : candidates) {
    const auto lightest = std::min_element(candidate.ranks.begin(), candidate.ranks.end(),
                                           [&](std::size_t a, std::size_t b) { return load[a] < load[b]; });
    load[*lightest] += weight(*candidate.entry);
    writers.emplace(key_of(*candidate.entry), *lightest);
  }
  return writers;
}

// Adds the entry to the metadata. Returns its line of the storage table.
StorageOrder::value_type add_entry(Metadata& metadata, const PlanEntry& entry) {
  const auto [found, is_new] = metadata.entries.try_emplace(entry.fqn);
  if (is_new) {
    metadata.order.push_back(entry.fqn);
    metadata.paths[entry.fqn] = entry.path;
    if (entry.is_value) {
      found->second = ValueEntry{};
    } else {
      found->second = TensorEntry{entry.dtype, entry.spec.global_shape, {}};
    }
  }
  if (entry.is_value) return {entry.fqn, std::nullopt};
  auto& chunks = std::get<TensorEntry>(found->second).chunks;
  chunks.push_back({entry.spec.offset, entry.spec.local_shape, {}});
  return {entry.fqn, chunks.size() - 1};
}

void check_coverage(const Metadata& metadata) {
  for (const std::string& fqn : metadata.order) {
    const TensorEntry* tensor = metadata.find_tensor(fqn);
    if (tensor == nullptr) continue;
    std::int64_t covered = 0;
    for (const StoredChunk& chunk : tensor->chunks) covered += c10::multiply_integers(chunk.sizes);
    if (covered != c10::multiply_integers(tensor->size))
      throw CheckpointError("the shards of " + fqn + " hold " + std::to_string(covered) +
                            " elements together, the tensor of shape " + dist::shape_text(tensor->size) + " has " +
                            std::to_string(c10::multiply_integers(tensor->size)));
  }
}

}  // namespace

std::vector<PlanEntry> local_plan(const std::vector<Item>& items) {
  std::vector<PlanEntry> plan;
  std::set<std::string> seen;
  plan.reserve(items.size());
  for (const Item& item : items) {
    PlanEntry entry;
    entry.fqn = item_fqn(item);
    entry.path = item_path(item);
    if (!seen.insert(entry.fqn).second)
      throw CheckpointError("the key " + entry.fqn + " occurs twice in the state to save");
    if (const auto* tensor = std::get_if<TensorItem>(&item)) {
      check_tensor(*tensor);
      entry.absent = tensor->absent;
      entry.sharded = tensor->sharded;
      entry.dtype = tensor->local.scalar_type();
      entry.spec = tensor->spec;
    } else {
      entry.is_value = true;
    }
    plan.push_back(std::move(entry));
  }
  return plan;
}

std::string encode_plan(const std::vector<PlanEntry>& plan) {
  Json json = Json::array();
  for (const PlanEntry& entry : plan) {
    Json path = Json::array();
    for (const auto& step : entry.path) std::visit([&](const auto& each) { path.push_back(each); }, step);
    if (entry.absent) {
      json.push_back(Json::array({entry.fqn}));
    } else if (entry.is_value) {
      json.push_back({entry.fqn, path});
    } else {
      json.push_back({entry.fqn, path, entry.sharded, static_cast<int>(entry.dtype), entry.spec.global_shape,
                      entry.spec.offset, entry.spec.local_shape});
    }
  }
  std::string bytes;
  Json::to_msgpack(json, bytes);
  return bytes;
}

std::vector<PlanEntry> decode_plan(const std::string& bytes) {
  std::vector<PlanEntry> plan;
  for (const Json& json : Json::from_msgpack(bytes)) {
    PlanEntry entry;
    entry.fqn = json.at(0).get<std::string>();
    entry.absent = json.size() == 1;
    if (entry.absent) {
      plan.push_back(std::move(entry));
      continue;
    }
    for (const Json& step : json.at(1)) {
      if (step.is_string()) {
        entry.path.emplace_back(step.get<std::string>());
      } else {
        entry.path.emplace_back(step.get<std::int64_t>());
      }
    }
    entry.is_value = json.size() == 2;
    if (!entry.is_value) {
      entry.sharded = json.at(2).get<bool>();
      entry.dtype = static_cast<c10::ScalarType>(json.at(3).get<int>());
      json.at(4).get_to(entry.spec.global_shape);
      json.at(5).get_to(entry.spec.offset);
      json.at(6).get_to(entry.spec.local_shape);
    }
    plan.push_back(std::move(entry));
  }
  return plan;
}

SavePlan plan_save(const std::vector<std::vector<PlanEntry>>& plans) {
  const std::map<ItemKey, std::size_t> writers = choose_writers(plans);
  SavePlan result;
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    std::vector<std::size_t> values, tensors;
    StorageOrder value_storage, tensor_storage;
    for (std::size_t i = 0; i < plans[rank].size(); ++i) {
      const PlanEntry& entry = plans[rank][i];
      if (entry.absent || writers.at(key_of(entry)) != rank) continue;
      (entry.is_value ? values : tensors).push_back(i);
      (entry.is_value ? value_storage : tensor_storage).push_back(add_entry(result.metadata, entry));
    }
    values.insert(values.end(), tensors.begin(), tensors.end());
    value_storage.insert(value_storage.end(), tensor_storage.begin(), tensor_storage.end());
    result.items.push_back(std::move(values));
    result.storage.push_back(std::move(value_storage));
  }
  check_coverage(result.metadata);
  return result;
}

void set_location(Metadata& metadata, const StorageOrder::value_type& entry, StorageLocation location) {
  Metadata::Entry& target = metadata.entries.at(entry.first);
  if (entry.second.has_value()) {
    std::get<TensorEntry>(target).chunks.at(*entry.second).location = std::move(location);
  } else {
    std::get<ValueEntry>(target).location = std::move(location);
  }
}

}  // namespace titan::checkpoint
