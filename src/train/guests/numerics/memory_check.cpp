#include "train/guests/numerics/memory_check.h"

#include <ATen/ATen.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/process/rank_process.h"
#include "base/text.h"

namespace titan::train {
namespace {

constexpr std::size_t kMostNamedChanges = 4;  // tensors in describe()

// Returns the hashes as numbers; waits for a device once.
std::vector<std::int64_t> read_hashes(const std::vector<at::Tensor>& hashes) {
  std::vector<std::int64_t> numbers(hashes.size());
  std::vector<at::Tensor> on_device;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i].is_cpu()) {
      numbers[i] = hashes[i].item<std::int64_t>();
    } else {
      on_device.push_back(hashes[i]);
      places.push_back(i);
    }
  }
  if (places.empty()) return numbers;
  const auto read = at::stack(on_device).cpu();
  for (std::size_t i = 0; i < places.size(); ++i) numbers[places[i]] = read.const_data_ptr<std::int64_t>()[i];
  return numbers;
}

}  // namespace

std::vector<std::string> changed_between(const MemoryHashes& before, const MemoryHashes& after) {
  TITAN_CHECK(before.tensors == after.tensors, "hashes of different tensors are compared");
  const auto then = read_hashes(before.hashes), now = read_hashes(after.hashes);
  std::vector<std::string> changed;
  for (std::size_t i = 0; i < then.size(); ++i)
    if (then[i] != now[i]) changed.push_back(before.tensors[i]);
  return changed;
}

MemoryHashes MemoryCheck::hash(bool with_state, const LeavesOut& leaves_out) {
  MemoryHashes out;
  out.has_state = with_state;
  const auto add = [&](std::string name, const at::Tensor& tensor) {
    out.tensors.push_back(std::move(name));
    out.hashes.push_back(bits_hash_(tensor));
  };
  const auto& trained = optimizer_.parameters();
  std::vector<bool> is_left_out(trained.size());
  std::set<std::string> weights_left_out;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    is_left_out[i] = leaves_out && leaves_out(i);
    if (is_left_out[i]) weights_left_out.insert(trained[i].fqn);
  }
  for (const auto& each : parameters_)
    if (each.local && !weights_left_out.contains(each.fqn)) add(each.fqn, each.local->tensor());
  if (!with_state) return out;
  const auto summed = optimizer_.summed_state();
  for (std::size_t i = 0; i < trained.size(); ++i)
    for (const auto& state : optimizer_.state(i))
      if (!is_left_out[i] || std::ranges::count(summed, state.name) == 0)
        add(state.name + " of " + trained[i].fqn, state.tensor);
  return out;
}

std::vector<int> MemoryReport::ranks() const {
  std::set<int> out;
  for (const auto& each : changes) out.insert(each.rank);
  return {out.begin(), out.end()};
}

MemoryReport gather_changes(const std::vector<std::string>& changed, dist::ProcessGroup& world) {
  MemoryReport out;
  const auto of_ranks = world.all_gather_bytes(host_name() + "\n" + join(changed, "\n"));
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    std::istringstream text(of_ranks[rank]);
    std::string line;
    std::getline(text, out.hosts.emplace_back());
    while (std::getline(text, line)) out.changes.push_back({static_cast<int>(rank), line});
  }
  return out;
}

std::string describe(const MemoryReport& report) {
  std::vector<std::string> named;
  for (const auto& [rank, tensor] : report.changes) {
    if (named.size() == kMostNamedChanges) break;
    named.push_back(fmt::format("{} on rank {} ({})", tensor, rank, report.hosts.at(static_cast<std::size_t>(rank))));
  }
  const auto left_out = report.changes.size() - named.size();
  return join(named, ", ") + (left_out > 0 ? fmt::format(", and {} more", left_out) : "");
}

}  // namespace titan::train
