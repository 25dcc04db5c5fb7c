#include "checkpoint/dcp/item.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace titan::checkpoint {
namespace {

const TensorItem& find(const std::vector<Item>& items, const std::string& fqn) {
  for (const Item& item : items)
    if (const auto* tensor = std::get_if<TensorItem>(&item); tensor && tensor->fqn == fqn) return *tensor;
  throw InternalError("a tied parameter is stored without " + fqn);
}

// Compares bytes: NaN equals itself, and 0 differs from -0.
bool same_bytes(const at::Tensor& one, const at::Tensor& other) {
  return one.numel() == 0 ||
         one.contiguous().view(-1).view(at::kByte).equal(other.contiguous().view(-1).view(at::kByte));
}

}  // namespace

CheckpointError unequal_ties(const std::string& first, const std::string& second) {
  return CheckpointError(first + " and " + second +
                         " have different values, and the model has one parameter for both; to keep both, set "
                         "model.args.enable_weight_tying (tie_word_embeddings in config.json) to false");
}

LoadItems::LoadItems(const std::vector<Item>& items) : items_(items) {
  for (Item& item : items_) {
    auto* tensor = std::get_if<TensorItem>(&item);
    if (tensor && !tensor->tied_to.empty()) tensor->local = at::empty_like(tensor->local.detach());
  }
}

bool LoadItems::has_ties() const {
  return std::ranges::any_of(items_, [](const Item& item) {
    const auto* tensor = std::get_if<TensorItem>(&item);
    return tensor && !tensor->tied_to.empty();
  });
}

void LoadItems::check_ties(const std::set<std::string>& stored) const {
  for (const Item& item : items_) {
    const auto* tensor = std::get_if<TensorItem>(&item);
    if (!tensor || tensor->tied_to.empty() || !stored.contains(tensor->fqn)) continue;
    if (!same_bytes(tensor->local, find(items_, tensor->tied_to).local.detach()))
      throw unequal_ties(tensor->tied_to, tensor->fqn);
  }
}

}  // namespace titan::checkpoint
