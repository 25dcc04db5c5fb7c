// Items that a rank passes to a save or a load.
#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/value.h"
#include "checkpoint/format/state_path.h"
#include "facts/shard_spec.h"

namespace titan::checkpoint {

// A tensor; this rank holds one box of it.
struct TensorItem {
  std::string fqn = {};
  StatePath path = {};
  at::Tensor local;      // CPU or CUDA, of shape spec.local_shape; a load fills it in place and casts to its dtype
  dist::ShardSpec spec;  // replicated: offset zero, local shape = global shape
  bool sharded = false;  // false: every rank that has the item holds the same full tensor
  // The item whose tensor this is too, under a second name, if a tied parameter is stored under several. A load checks
  // that both are equal where the checkpoint has both. Empty otherwise.
  std::string tied_to = {};
  // Other ranks have all of it: `local` is empty, of the dtype that they have. Every rank lists every weight, since
  // rank 0 writes and reads files of whole weights.
  bool absent = false;
};

// An item that is not a tensor. Ranks with the same key hold the same value; a per-rank value has the rank in its key.
struct ValueItem {
  std::string fqn;
  StatePath path;
  Value value;            // a load ignores it and returns what was saved
  bool optional = false;  // a load does not fail if it is missing
};

using Item = std::variant<TensorItem, ValueItem>;

// Returns the error for two names of one parameter that are stored with different values.
CheckpointError unequal_ties(const std::string& first, const std::string& second);

// The items of a load, with memory of their own for the second names of tied parameters.
class LoadItems {
 public:
  explicit LoadItems(const std::vector<Item>& items);

  const std::vector<Item>& items() const { return items_; }
  bool has_ties() const;
  // Call after the load. Throws unequal_ties() if a second name that is in `stored` has other values than the first.
  void check_ties(const std::set<std::string>& stored) const;

 private:
  std::vector<Item> items_;
};

inline const std::string& item_fqn(const Item& item) {
  return std::visit([](const auto& each) -> const std::string& { return each.fqn; }, item);
}

inline const StatePath& item_path(const Item& item) {
  return std::visit([](const auto& each) -> const StatePath& { return each.path; }, item);
}

}  // namespace titan::checkpoint
