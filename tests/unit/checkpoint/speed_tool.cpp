// speed_tool save|load FOLDER SHAPES: for benchmarks/checkpoint_speed.py; one process per rank, torchrun's variables
//   SHAPES   a file, one line per float32 tensor with its sizes; tensors "0", "1", … are split over the ranks on dim 0
//   save     writes the tensors; element i of tensor k is i % 65521 + k
//   load     reads them into place, and fails if any element differs
// Rank 0 prints the seconds from when all ranks are ready until all are done.
#include <ATen/ATen.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "base/env.h"
#include "base/error.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "distributed/world.h"

namespace titan::checkpoint {
namespace {

std::vector<std::vector<std::int64_t>> read_shapes(const std::string& path) {
  std::vector<std::vector<std::int64_t>> shapes;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    shapes.emplace_back(std::istream_iterator<std::int64_t>(words), std::istream_iterator<std::int64_t>());
  }
  if (shapes.empty()) throw ConfigError(path + " has no line with sizes");
  return shapes;
}

// Returns this rank's rows: ceil(rows / ranks), fewer on the last ranks.
dist::ShardSpec rows_of_rank(const std::vector<std::int64_t>& shape, int rank, int size) {
  dist::ShardSpec spec{shape, std::vector<std::int64_t>(shape.size(), 0), shape};
  const std::int64_t chunk = (shape[0] + size - 1) / size;
  spec.offset[0] = std::min(chunk * rank, shape[0]);
  spec.local_shape[0] = std::min(spec.offset[0] + chunk, shape[0]) - spec.offset[0];
  return spec;
}

at::Tensor content(const dist::ShardSpec& spec, std::int64_t index) {
  const std::int64_t row = c10::multiply_integers(spec.global_shape.begin() + 1, spec.global_shape.end());
  const std::int64_t begin = spec.offset[0] * row, end = begin + spec.local_shape[0] * row;
  return (at::arange(begin, end, at::kLong).remainder(65521) + index).to(at::kFloat).view(spec.local_shape);
}

std::vector<Item> make_items(const std::string& shapes, int rank, int size, bool filled) {
  std::vector<Item> items;
  for (const auto& shape : read_shapes(shapes)) {
    const std::string name = std::to_string(items.size());
    const auto spec = rows_of_rank(shape, rank, size);
    const auto local =
        filled ? content(spec, static_cast<std::int64_t>(items.size())) : at::full(spec.local_shape, -1, at::kFloat);
    items.push_back(TensorItem{name, {name}, local, spec, true});
  }
  return items;
}

void check(const std::vector<Item>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& item = std::get<TensorItem>(items[i]);
    if (!item.local.equal(content(item.spec, static_cast<std::int64_t>(i))))
      throw CheckpointError("tensor " + item.fqn + " has other elements");
  }
}

int run(const std::string& action, const std::string& folder, const std::string& shapes) {
  dist::World world(detect_launch(), c10::kCPU, std::chrono::seconds(60));
  GroupRanks ranks(world.group());
  const auto items = make_items(shapes, ranks.rank(), ranks.size(), action == "save");
  world.group().barrier();
  const auto start = std::chrono::steady_clock::now();
  if (action == "save") {
    save(folder, items, ranks);
  } else {
    load(folder, items, ranks);
  }
  world.group().barrier();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (action == "load") check(items);
  if (ranks.rank() == 0) std::printf("%.6f\n", seconds.count());
  world.shutdown();
  return 0;
}

}  // namespace
}  // namespace titan::checkpoint

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() != 3 || (args[0] != "save" && args[0] != "load")) {
    std::cerr << "usage: speed_tool save|load FOLDER SHAPES\n";
    return 2;
  }
  try {
    return titan::checkpoint::run(args[0], args[1], args[2]);
  } catch (const std::exception& error) {
    std::cerr << "speed_tool: " << error.what() << "\n";
    return 1;
  }
}
