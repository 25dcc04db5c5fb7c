#include <c10/util/accumulate.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <unordered_set>

#include "base/error.h"
#include "checkpoint/dcp/planner.h"
#include "facts/adapter_names.h"

namespace titan::checkpoint {
namespace {

// Returns the common part of a stored chunk and the wanted box, or nullopt.
std::optional<ReadBox> intersect(const StoredChunk& chunk, const dist::ShardSpec& spec) {
  ReadBox box;
  box.chunk = &chunk;
  for (std::size_t d = 0; d < spec.global_shape.size(); ++d) {
    const std::int64_t begin = std::max(chunk.offsets[d], spec.offset[d]);
    const std::int64_t end = std::min(chunk.offsets[d] + chunk.sizes[d], spec.offset[d] + spec.local_shape[d]);
    if (begin >= end) return std::nullopt;
    box.start_in_chunk.push_back(begin - chunk.offsets[d]);
    box.start_in_local.push_back(begin - spec.offset[d]);
    box.sizes.push_back(end - begin);
  }
  return box;
}

// True if two boxes share an element. Sorts them along dim 0 and compares each box only with those that begin before it
// ends there: each shard with its neighbors.
bool overlap(std::span<const ReadBox> boxes) {
  const auto meet = [](const ReadBox& a, const ReadBox& b, std::size_t d) {
    return a.start_in_local[d] < b.start_in_local[d] + b.sizes[d] &&
           b.start_in_local[d] < a.start_in_local[d] + a.sizes[d];
  };
  std::vector<const ReadBox*> order;
  for (const ReadBox& box : boxes) order.push_back(&box);
  std::sort(order.begin(), order.end(),
            [](const ReadBox* a, const ReadBox* b) { return a->start_in_local < b->start_in_local; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t j = i + 1; j < order.size(); ++j) {
      std::size_t d = 0;
      while (d < order[i]->sizes.size() && meet(*order[i], *order[j], d)) ++d;
      if (d == order[i]->sizes.size()) return true;
      if (d == 0) break;  // later boxes do not reach this one either
    }
  }
  return false;
}

class Planner {
 public:
  Planner(const Metadata& metadata, const std::vector<Item>& items) : metadata_(metadata), items_(items) {}

  LoadPlan plan(const std::string& what, bool all_weights) {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const Metadata::Entry* entry = metadata_.find(item_fqn(items_[i]));
      if (const auto* tensor = std::get_if<TensorItem>(&items_[i])) {
        add_tensor(i, *tensor, entry);
      } else {
        add_value(i, std::get<ValueItem>(items_[i]), entry);
      }
    }
    const std::size_t num_wrong = num_problems_;
    if (all_weights) add_unexpected();
    if (!problems_.empty()) {
      const std::size_t others = num_problems_ - num_wrong;
      throw CheckpointError(
          std::to_string(num_wrong) + " of " + std::to_string(items_.size()) +
          " wanted items do not match the checkpoint " + what +
          (others > 0 ? ", which has " + std::to_string(others) + " weights that are not in the model:" : ":") +
          problems_);
    }
    std::sort(plan_.boxes.begin(), plan_.boxes.end(), [](const ReadBox& a, const ReadBox& b) {
      const StorageLocation& left = a.chunk->location;
      const StorageLocation& right = b.chunk->location;
      return std::tie(left.relative_path, left.offset) < std::tie(right.relative_path, right.offset);
    });
    return std::move(plan_);
  }

 private:
  void problem(const std::string& text) {
    problems_ += "\n  " + text;
    ++num_problems_;
  }

  // A model's weights are stored under their own names; all other state is nested in a group.
  void add_unexpected() {
    std::unordered_set<std::string> wanted;
    for (const Item& item : items_) wanted.insert(item_fqn(item));
    for (const std::string& fqn : metadata_.order) {
      const auto path = metadata_.paths.find(fqn);
      const bool is_weight = metadata_.find_tensor(fqn) && path != metadata_.paths.end() && path->second.size() == 1;
      if (is_weight && !wanted.contains(fqn)) problem("unexpected key: " + fqn);
    }
  }

  void add_value(std::size_t index, const ValueItem& item, const Metadata::Entry* entry) {
    if (entry == nullptr) {
      if (!item.optional) problem("missing key: " + item.fqn);
    } else if (!std::holds_alternative<ValueEntry>(*entry)) {
      problem(item.fqn + ": expected a value, the checkpoint has a tensor");
    } else {
      plan_.values.push_back(index);
    }
  }

  // A checkpoint of the model without adapters, as their training begins with, has none of them.
  bool has_adapters() const { return std::ranges::any_of(metadata_.order, is_adapter_name); }

  void add_tensor(std::size_t index, const TensorItem& item, const Metadata::Entry* entry) {
    if (entry == nullptr && !item.tied_to.empty()) return;  // the checkpoint has the parameter once
    if (entry == nullptr && is_adapter_name(item.fqn) && !has_adapters()) return;
    if (entry == nullptr) return problem("missing key: " + item.fqn);
    const auto* stored = std::get_if<TensorEntry>(entry);
    if (stored == nullptr) return problem(item.fqn + ": expected a tensor, the checkpoint has a value");
    if (stored->size != item.spec.global_shape)
      return problem(item.fqn + ": expected shape " + dist::shape_text(item.spec.global_shape) +
                     ", the checkpoint has " + dist::shape_text(stored->size));
    if (item.local.sizes() != at::IntArrayRef(item.spec.local_shape))
      return problem(item.fqn + ": the local tensor has shape " + dist::shape_text(item.local.sizes()) +
                     ", its shard spec says " + dist::shape_text(item.spec.local_shape));
    const std::size_t first_box = plan_.boxes.size();
    std::int64_t covered = 0;
    for (const StoredChunk& chunk : stored->chunks) {
      auto box = intersect(chunk, item.spec);
      if (!box) continue;
      covered += c10::multiply_integers(box->sizes);
      box->item = index;
      plan_.boxes.push_back(std::move(*box));
    }
    if (covered != c10::multiply_integers(item.spec.local_shape)) {
      problem(item.fqn + ": the stored chunks hold " + std::to_string(covered) + " of the " +
              std::to_string(c10::multiply_integers(item.spec.local_shape)) + " elements of this rank's part");
    } else if (overlap(std::span(plan_.boxes).subspan(first_box))) {
      problem(item.fqn + ": stored chunks overlap, so that a part of the tensor is in none of them");
    }
  }

  const Metadata& metadata_;
  const std::vector<Item>& items_;
  LoadPlan plan_;
  std::string problems_;
  std::size_t num_problems_ = 0;
};

}  // namespace

LoadPlan plan_load(const Metadata& metadata, const std::vector<Item>& items, const std::string& what,
                   bool all_weights) {
  return Planner(metadata, items).plan(what, all_weights);
}

}  // namespace titan::checkpoint
