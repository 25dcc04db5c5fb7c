#include "data/order/saved_order.h"

#include "base/error.h"

namespace titan::data {
namespace {

struct OrderKey {
  DataOrder order;
  const char* key;
  const char* name;  // in training.data_order
};

constexpr OrderKey kOrderKeys[] = {
    {DataOrder::kElastic, kElasticKey, "elastic"},
    {DataOrder::kTorchTitan, kTorchTitanKey, "torchtitan"},
};

}  // namespace

std::vector<std::string> order_keys() {
  std::vector<std::string> keys;
  for (const OrderKey& each : kOrderKeys) keys.emplace_back(each.key);
  return keys;
}

void check_order(const Values& saved, DataOrder now) {
  const char* other = nullptr;
  for (const OrderKey& each : kOrderKeys) {
    if (!saved.contains(each.key)) continue;
    if (each.order == now) return;
    other = each.name;
  }
  if (other == nullptr) return;
  throw CheckpointError(
      "the dataloader state is not one of the order in which this run reads its data; "
      "set training.data_order = \"" +
      std::string(other) + "\"" + kOrRestart);
}

}  // namespace titan::data
