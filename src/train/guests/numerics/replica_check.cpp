#include "train/guests/numerics/replica_check.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <utility>

#include "base/process/rank_process.h"
#include "base/text.h"

namespace titan::train {
namespace {

constexpr std::size_t kMostNamed = 4;  // tensors in describe()

// True if the rank's part of a parameter is the same along an axis of the mesh.
bool is_whole_along(const nn::NamedParameter& parameter, const std::string& axis) {
  const auto& sharding = parameter.parameter->sharding;
  if (!sharding || !sharding->mesh.has(axis)) return true;
  const auto& names = sharding->mesh.axis_names();
  const auto index = static_cast<std::size_t>(std::ranges::find(names, axis) - names.begin());
  return !dist::shard_dim(sharding->placements[index]);
}

std::string box_text(const dist::ShardSpec& spec) {
  return dist::shape_text(spec.offset) + "+" + dist::shape_text(spec.local_shape);
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> numbers;
  for (const int rank : ranks) numbers.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(numbers, ", ");
}

std::vector<int> without_first(const std::vector<std::vector<int>>& ranks) {
  std::vector<int> out;
  for (std::size_t i = 1; i < ranks.size(); ++i) out.insert(out.end(), ranks[i].begin(), ranks[i].end());
  std::ranges::sort(out);
  return out;
}

std::string difference_text(const ReplicaReport::Difference& difference) {
  const auto others = without_first(difference.ranks);
  const std::string verb = others.size() == 1 ? " differs from " : " differ from ";
  return difference.tensor + " (" + ranks_text(others) + verb + ranks_text(difference.ranks[0]) +
         (difference.has_majority() ? ")" : "; either may be the wrong one)");
}

}  // namespace

bool ReplicaReport::Difference::has_majority() const {
  std::size_t copies = 0;
  for (const auto& each : ranks) copies += each.size();
  return 2 * ranks[0].size() > copies;
}

std::vector<int> ReplicaReport::suspects() const {
  std::set<int> out;
  for (const auto& difference : differences)
    for (std::size_t i = difference.has_majority() ? 1 : 0; i < difference.ranks.size(); ++i)
      out.insert(difference.ranks[i].begin(), difference.ranks[i].end());
  return {out.begin(), out.end()};
}

std::string describe(const ReplicaReport& report) {
  std::vector<std::string> named, machines;
  for (std::size_t i = 0; i < std::min(report.differences.size(), kMostNamed); ++i)
    named.push_back(difference_text(report.differences[i]));
  const auto left_out = report.differences.size() - named.size();
  const auto suspects = report.suspects();
  for (const int rank : suspects) {
    const std::string& host = report.hosts.at(static_cast<std::size_t>(rank));
    if (std::ranges::count(machines, host) == 0) machines.push_back(host);
  }
  return join(named, ", ") + (left_out > 0 ? fmt::format(", and {} more", left_out) : "") +
         fmt::format("; {} of {} {} in doubt", ranks_text(suspects), join(machines, ", "),
                     suspects.size() == 1 ? "is" : "are");
}

ReplicaCheck::ReplicaCheck(const RunParameters& parameters, optim::Optimizer& optimizer, const dist::Meshes& meshes,
                           dist::ProcessGroup& world)
    : parameters_(parameters), optimizer_(optimizer), world_(world) {
  const auto add = [&](dist::ProcessGroup& group, const auto& has_copies) {
    if (group.size() == 1) return;
    Axis& axis = axes_.emplace_back(Axis{&group, {}});
    for (const auto& each : parameters_) axis.has_copies.push_back(each.local && has_copies(each));
  };
  for (const auto& [mesh, name] : {std::pair(&meshes.fsdp, "dp_replicate"), std::pair(&meshes.tp, "tp")})
    if (mesh->has(name))
      add(mesh->group(name), [&](const RunParameter& each) { return is_whole_along(*each.local, name); });
  const bool has_ties =
      std::ranges::any_of(parameters_, [](const RunParameter& each) { return !each.other_names.empty(); });
  if (has_ties) add(meshes.pp.group(), [](const RunParameter& each) { return !each.other_names.empty(); });
}

ReplicaReport ReplicaCheck::run() {
  if (!has_copies()) return {};
  agree_on_places();
  const auto own = own_tensors();
  const auto hashes = hash(own);
  auto differs = at::zeros_like(hashes);
  for (const Axis& axis : axes_) differs.bitwise_or_(differing(axis, hashes));
  world_.all_reduce(differs, dist::ReduceOp::kMax).wait();
  if (!differs.any().item<bool>()) return {};
  return report(own, hashes, differs);
}

bool ReplicaCheck::is_copied(std::size_t parameter) const {
  return std::ranges::any_of(axes_, [&](const Axis& axis) { return axis.has_copies[parameter]; });
}

// A rank may have no trained parameter, and then does not know how many tensors the optimizer keeps for one.
void ReplicaCheck::agree_on_places() {
  if (places_each_ > 0) return;
  auto most = at::ones({1}, at::kLong);
  for (std::size_t i = 0; i < optimizer_.parameters().size(); ++i)
    most.fill_(std::max(most.item<std::int64_t>(), 1 + std::ssize(optimizer_.state(i))));
  world_.all_reduce(most, dist::ReduceOp::kMax).wait();
  places_each_ = most.item<std::int64_t>();
}

// Returns the tensors of which other ranks have copies.
std::vector<ReplicaCheck::Own> ReplicaCheck::own_tensors() {
  std::vector<Own> own;
  std::size_t trained = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const RunParameter& each = parameters_[i];
    if (!each.local) continue;
    const bool has_state = each.is_trained;
    const std::size_t index = trained;
    trained += has_state ? 1 : 0;
    if (!is_copied(i)) continue;
    auto place = static_cast<std::int64_t>(i) * places_each_;
    const std::string box = box_text(each.local->spec());
    own.push_back({place++, "", each.local->tensor(), box});
    if (!has_state) continue;
    for (const auto& state : optimizer_.state(index))
      own.push_back({place++, state.name, state.tensor, state.is_like_parameter ? box : ""});
  }
  return own;
}

// Returns the hashes by place, on the host; 0 where this rank has no copy.
at::Tensor ReplicaCheck::hash(const std::vector<Own>& own) {
  auto hashes = at::zeros({std::ssize(parameters_) * places_each_}, at::kLong);
  auto* const numbers = hashes.mutable_data_ptr<std::int64_t>();
  std::vector<at::Tensor> on_device;
  std::vector<std::int64_t> places;
  for (const Own& each : own) {
    auto one = bits_hash_(each.tensor);
    if (one.is_cpu()) {
      numbers[each.place] = one.item<std::int64_t>();
    } else {
      on_device.push_back(std::move(one));
      places.push_back(each.place);
    }
  }
  if (places.empty()) return hashes;
  const auto read = at::stack(on_device).cpu();  // waits for the device once
  for (std::size_t i = 0; i < places.size(); ++i) numbers[places[i]] = read.const_data_ptr<std::int64_t>()[i];
  return hashes;
}

// Returns 1 by place where the ranks along the axis hold different copies, on those ranks; else 0.
at::Tensor ReplicaCheck::differing(const Axis& axis, const at::Tensor& hashes) const {
  auto copied = at::zeros_like(hashes, at::kBool);
  for (std::size_t i = 0; i < axis.has_copies.size(); ++i)
    if (axis.has_copies[i]) copied.narrow(0, static_cast<std::int64_t>(i) * places_each_, places_each_).fill_(true);
  // ~x falls as x rises: the maximum of ~x is that of the least x. A rank without a copy has neither.
  constexpr auto kNone = std::numeric_limits<std::int64_t>::min();
  auto extremes = at::stack({at::where(copied, hashes, kNone), at::where(copied, hashes.bitwise_not(), kNone)});
  axis.group->all_reduce(extremes, dist::ReduceOp::kMax).wait();
  return copied.logical_and(extremes[0].ne(extremes[1].bitwise_not())).to(at::kLong);
}

// Exchanges what is known of the places that differ: a line each of place, state, box and hash.
ReplicaReport ReplicaCheck::report(const std::vector<Own>& own, const at::Tensor& hashes,
                                   const at::Tensor& differs) const {
  std::string lines = host_name() + "\n";
  for (const Own& each : own)
    if (differs[each.place].item<std::int64_t>() != 0)
      lines += fmt::format("{}\t{}\t{}\t{:016x}\n", each.place, each.state, each.box,
                           static_cast<std::uint64_t>(hashes[each.place].item<std::int64_t>()));
  ReplicaReport out;
  // By place, then by box: the state's name, and the ranks by hash.
  std::map<std::pair<std::int64_t, std::string>, std::pair<std::string, std::map<std::string, std::vector<int>>>> found;
  const auto of_ranks = world_.all_gather_bytes(lines);
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    std::istringstream text(of_ranks[rank]);
    std::string line;
    std::getline(text, out.hosts.emplace_back());
    while (std::getline(text, line)) {
      std::istringstream words(line);
      std::string place, state, box, hash;
      for (auto* word : {&place, &state, &box, &hash}) std::getline(words, *word, '\t');
      auto& [name, ranks] = found[{std::stoll(place), box}];
      name = state;
      ranks[hash].push_back(static_cast<int>(rank));
    }
  }
  for (const auto& [where, what] : found) {
    const auto& fqn = parameters_[static_cast<std::size_t>(where.first / places_each_)].fqn;
    auto& difference = out.differences.emplace_back();
    difference.tensor = what.first.empty() ? fqn : what.first + " of " + fqn;
    for (const auto& [hash, ranks] : what.second) difference.ranks.push_back(ranks);
    std::ranges::sort(difference.ranks, [](const auto& a, const auto& b) {
      return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
    });
  }
  std::erase_if(out.differences, [](const auto& each) { return each.ranks.size() == 1; });  // a box whose copies agree
  return out;
}

}  // namespace titan::train
