// checkpoint_tool write FOLDER RANKS [FILES] | dump FOLDER OUT | overwrite FOLDER COUNT |
//                 time FOLDER RANKS MB FILES READERS
//   write      saves the sample state, split over RANKS threads, FILES files each
//   dump       reads every key of a checkpoint and saves it again from one rank, with full tensors
//   overwrite  saves step 0, 1, … COUNT-1 into the same folder and prints a line after each
//   time       saves MB megabytes with RANKS threads, loads them with READERS threads; prints the seconds of both
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>

#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/torchtitan_keys.h"
#include "data/order/torchtitan_state.h"
#include "tests/unit/checkpoint/sharded_items.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

std::vector<Item> sample_items(int rank, int size) {
  std::vector<Item> items;
  for (const auto& [name, tensor] : sample_tensors()) items.push_back(shard(name, tensor, rank, size));
  items.push_back(replicate("scalar", at::scalar_tensor(4.0, at::kFloat)));
  items.push_back(replicate("empty", at::empty({0, 4}, at::kFloat)));
  items.push_back(ValueItem{"train_state.step", {"train_state", "step"}, Value(4)});
  items.push_back(value("betas", Value::tuple({0.9, 0.95})));
  items.push_back(value("lrs", Value::list({0.0008, -1, 70000, std::int64_t{1} << 40, true, Value(), "h\xc3\xa9"})));
  items.push_back(value("nested", Value::dict({{"a", Value::list({Value::tuple({}), 1.5})}, {"b", Value::dict({})}})));
  items.push_back(value("bytes", Value::bytes(std::string("\x00\xff\x80 ab", 6))));
  items.push_back(value("no_bytes", Value::bytes("")));
  const data::TorchTitanState position{.num_batches = 3 + rank, .sample_idx = 5, .token_buffer = {1, 300, 70000, rank}};
  for (const StateEntry& entry : data::to_entries(position, {rank, size}, 4))
    items.push_back(value_item(entry.key, entry.pickled ? pickled(entry.value) : entry.value));
  append_param_group(items, "even", 0.25,
                     {{"betas", Value::tuple({0.9, 0.95})},
                      {"eps", 1e-8},
                      {"weight_decay", 0.1},
                      {"amsgrad", false},
                      {"maximize", false},
                      {"foreach", false},
                      {"capturable", false},
                      {"differentiable", false},
                      {"fused", true},
                      {"decoupled_weight_decay", true}},
                     0.5);
  append_lr_scheduler(items, {0.0008, 4, 0.0002});
  return items;
}

int fail_if_any(const std::vector<std::string>& errors) {
  for (const std::string& error : errors)
    if (!error.empty()) {
      std::cerr << error << "\n";
      return 1;
    }
  return 0;
}

int write(const std::string& folder, int size, int files) {
  return fail_if_any(run_ranks(
      size, [&](Ranks& ranks) { save(folder, sample_items(ranks.rank(), size), ranks, {.files_per_rank = files}); }));
}

// Runs `body` on `size` threads and prints "<what> <seconds>".
int timed(const char* what, int size, const std::function<void(Ranks&)>& body) {
  const auto begin = std::chrono::steady_clock::now();
  const int failed = fail_if_any(run_ranks(size, body));
  std::printf("%s %.3f\n", what, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return failed;
}

int time_both(const std::string& folder, int writers, int megabytes, int files, int readers) {
  constexpr int kTensors = 16;
  const auto items = [&](int rank, int size) {
    std::vector<Item> result;
    const std::int64_t rows = std::int64_t{megabytes} * 1000 / kTensors / 4, begin = rows * rank / size;
    const std::int64_t count = rows * (rank + 1) / size - begin;
    for (int i = 0; i < kTensors; ++i) {
      const std::string name = "layers." + std::to_string(i) + ".weight";
      result.push_back(TensorItem{
          name, {name}, at::full({count, 1000}, i, at::kFloat), {{rows, 1000}, {begin, 0}, {count, 1000}}, true});
    }
    return result;
  };
  std::vector<std::vector<Item>> parts;
  for (int rank = 0; rank < writers; ++rank) parts.push_back(items(rank, writers));
  const auto part = [&](Ranks& ranks) -> const std::vector<Item>& {
    return parts[static_cast<std::size_t>(ranks.rank())];
  };
  if (timed("save", writers, [&](Ranks& ranks) { save(folder, part(ranks), ranks, {.files_per_rank = files}); }))
    return 1;
  parts.clear();
  for (int rank = 0; rank < readers; ++rank) parts.push_back(items(rank, readers));
  return timed("load", readers, [&](Ranks& ranks) { load(folder, part(ranks), ranks); });
}

int dump(const std::string& folder, const std::string& out) {
  return fail_if_any(run_ranks(1, [&](Ranks& ranks) {
    const Metadata metadata = read_metadata(folder);
    std::vector<Item> items;
    for (const std::string& fqn : metadata.order) {
      const StatePath& path = metadata.paths.at(fqn);
      if (const TensorEntry* tensor = metadata.find_tensor(fqn)) {
        items.push_back(TensorItem{fqn, path, at::zeros(tensor->size, at::TensorOptions(tensor->dtype)),
                                   dist::ShardSpec::replicated(tensor->size), false});
      } else {
        items.push_back(ValueItem{fqn, path, {}, false});
      }
    }
    const Values values = load(folder, items, ranks);
    for (Item& item : items)
      if (auto* each = std::get_if<ValueItem>(&item)) each->value = values.at(each->fqn);
    save(out, items, ranks);
  }));
}

int overwrite(const std::string& folder, int count) {
  return fail_if_any(run_ranks(2, [&](Ranks& ranks) {
    for (int step = 0; step < count; ++step) {
      const auto content = at::full({1000, 200}, step, at::kFloat);
      save(folder, {shard("w", content, ranks.rank(), 2), value("step", step)}, ranks);
      if (ranks.rank() == 0) {
        std::printf("%d\n", step);
        std::fflush(stdout);
      }
    }
  }));
}

}  // namespace
}  // namespace titan::checkpoint

int main(int argc, char** argv) {
  using namespace titan::checkpoint;
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 3 && args[0] == "write") return write(args[1], std::stoi(args[2]), 1);
  if (args.size() == 4 && args[0] == "write") return write(args[1], std::stoi(args[2]), std::stoi(args[3]));
  if (args.size() == 6 && args[0] == "time")
    return time_both(args[1], std::stoi(args[2]), std::stoi(args[3]), std::stoi(args[4]), std::stoi(args[5]));
  if (args.size() == 3 && args[0] == "dump") return dump(args[1], args[2]);
  if (args.size() == 3 && args[0] == "overwrite") return overwrite(args[1], std::stoi(args[2]));
  std::cerr << "usage: checkpoint_tool write FOLDER RANKS [FILES] | dump FOLDER OUT | overwrite FOLDER COUNT | "
               "time FOLDER RANKS MB FILES READERS\n";
  return 2;
}
