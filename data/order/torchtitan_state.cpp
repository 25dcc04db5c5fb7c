#include "data/order/torchtitan_state.h"

#include <string>

#include "base/error.h"
#include "data/order/saved_order.h"

namespace titan::data {
namespace {

std::string rank_key(std::int64_t rank) { return "dataloader.dp_rank_" + std::to_string(rank); }

}  // namespace

std::vector<StateEntry> to_entries(const TorchTitanState& state, const DataRank& rank, std::int64_t batch_size) {
  // The state of torchdata's StatefulDataLoader without workers, entry by entry: it reads all of them.
  Value loader = Value::dict({
      {"_index_sampler_state", Value()},
      {"_sampler_iter_state", Value::dict({{"samples_yielded", state.num_batches * batch_size}})},
      {"_sampler_iter_yielded", state.num_batches},
      {"_num_yielded", state.num_batches},
      {"_IterableDataset_len_called", Value()},
      {"_shared_seed", Value()},
      {"fetcher_state", Value::dict({{"dataset_iter_state", Value()}, {"fetcher_ended", false}})},
      {"dataset_state",
       Value::dict({{"token_buffer", Value::ints(state.token_buffer)}, {"sample_idx", state.sample_idx}})},
      {"_iterator_finished", false},
  });
  std::vector<StateEntry> entries;
  entries.push_back({.key = rank_key(rank.rank), .value = std::move(loader), .pickled = true});
  entries.push_back({.key = kTorchTitanKey, .value = rank.size});
  return entries;
}

TorchTitanState parse_torchtitan_state(const Values& saved, std::int64_t rank) {
  const std::string key = rank_key(rank);
  const Value::Dict& loader = value_at(saved, key).as_dict(key);
  if (loader.find("_snapshot") != nullptr)
    throw CheckpointError(key +
                          " was saved by a data loader with worker processes; such a position cannot be continued. Set "
                          "checkpoint.exclude_from_loading = [\"dataloader\"] to restart the data");
  const Value::Dict& dataset = loader.at("dataset_state", key).as_dict(key + " dataset_state");
  return {.num_batches = loader.at("_num_yielded", key).as_int(key + " _num_yielded"),
          .sample_idx = dataset.at("sample_idx", key + " dataset_state").as_int(key + " sample_idx"),
          .token_buffer = dataset.at("token_buffer", key + " dataset_state").as_ints(key + " token_buffer")};
}

}  // namespace titan::data
