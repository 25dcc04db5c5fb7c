#include "parallel/fsdp/wrap_policy.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "parallel/fsdp/fully_shard.h"

namespace titan::fsdp {
namespace {

std::string_view parent_of(std::string_view fqn) {
  const auto dot = fqn.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : fqn.substr(0, dot);
}

// True if `name` matches `pattern`, in which a * stands for any characters but a dot.
bool matches(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*')
    return !name.empty() && name.front() == pattern.front() && matches(name.substr(1), pattern.substr(1));
  if (matches(name, pattern.substr(1))) return true;
  return !name.empty() && name.front() != '.' && matches(name.substr(1), pattern);
}

// The modules below a root, and the group that each belongs to itself.
class Grouping {
 public:
  explicit Grouping(nn::Module& root) : root_(root), modules_(root.named_modules()) {
    for (std::size_t i = 0; i < modules_.size(); ++i) index_[modules_[i].fqn] = i;
  }

  const std::vector<nn::NamedModule>& modules() const { return modules_; }

  // Makes the module a group of its own, unless it is one.
  void add(const std::string& fqn) {
    if (group_of_.emplace(fqn, groups_.size()).second) groups_.push_back({fqn});
  }

  std::vector<WrapGroup> finish() {
    join_ties();
    for (auto& group : groups_) drop_nested(group);
    return in_order();
  }

 private:
  using Names = std::vector<std::string>;

  // Returns the innermost group that has the module or encloses it; nullopt if that is the root's.
  std::optional<std::size_t> owner_of(std::string_view fqn) const {
    for (; !fqn.empty(); fqn = parent_of(fqn))
      if (const auto found = group_of_.find(std::string(fqn)); found != group_of_.end()) return found->second;
    return std::nullopt;
  }

  void join_ties() {
    std::map<const nn::Parameter*, Names> modules_of;
    for (const auto& named : root_.named_parameters(/*remove_duplicate=*/false))
      modules_of[&named.parameter->first_slot()].emplace_back(parent_of(named.fqn));
    for (const auto& [parameter, names] : modules_of) {
      std::optional<std::size_t> target;
      for (const auto& name : names)
        if (const auto owner = owner_of(name); owner && !target) target = owner;
      if (!target || names.size() == 1) continue;
      for (const auto& name : names) join(*target, name);
    }
  }

  // Adds the owner of the module to `target`, or the module itself if no group owns it.
  void join(std::size_t target, const std::string& fqn) {
    const auto owner = owner_of(fqn);
    if (owner == target) return;
    Names names = owner ? std::exchange(groups_[*owner], {}) : Names{fqn};
    for (std::string& name : names) {
      group_of_[name] = target;
      groups_[target].push_back(std::move(name));
    }
  }

  // A module takes the parameters of a module of its own group below it.
  static void drop_nested(Names& names) {
    const Names all = names;
    std::erase_if(names, [&](const std::string& name) {
      return std::ranges::any_of(all, [&](const std::string& outer) { return name.starts_with(outer + "."); });
    });
  }

  // Returns the groups so that each comes before those that enclose one of its modules.
  std::vector<WrapGroup> in_order() const {
    std::vector<std::set<std::size_t>> inner(groups_.size());
    for (std::size_t i = 0; i < groups_.size(); ++i)
      for (const std::string& name : groups_[i])
        if (const auto outer = owner_of(parent_of(name)); outer && *outer != i) inner[*outer].insert(i);
    std::vector<WrapGroup> order;
    std::set<std::size_t> done;
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (std::size_t i = 0; i < groups_.size(); ++i) {
        if (groups_[i].empty() || done.contains(i) || !std::ranges::includes(done, inner[i])) continue;
        order.push_back(make(groups_[i]));
        goes_on = done.insert(i).second;
      }
    }
    const auto is_group = [](const Names& names) { return !names.empty(); };
    if (order.size() != static_cast<std::size_t>(std::ranges::count_if(groups_, is_group)))
      throw InternalError("[fsdp] two groups that tied parameters make enclose modules of each other");
    return order;
  }

  // In module order, so that errors and messages name the first module first.
  WrapGroup make(const Names& names) const {
    std::set<std::size_t> sorted;
    for (const std::string& name : names) sorted.insert(index_.at(name));
    WrapGroup group;
    for (const std::size_t index : sorted) {
      group.modules.push_back(modules_[index].module);
      group.names.push_back(modules_[index].fqn);
    }
    return group;
  }

  nn::Module& root_;
  std::vector<nn::NamedModule> modules_;
  std::map<std::string, std::size_t> index_;     // FQN -> index in modules_
  std::map<std::string, std::size_t> group_of_;  // FQN of a module that a group has -> index in groups_
  std::vector<Names> groups_;                    // empty: joined to another one
};

// Returns the names of modules that a pattern could have meant.
std::vector<std::string> callable_names(const std::vector<nn::NamedModule>& modules) {
  std::vector<std::string> names;
  for (const auto& [fqn, module] : modules)
    if (!fqn.empty() && !module->is_container()) names.push_back(fqn);
  return names;
}

[[noreturn]] void fail_unmatched(const std::string& pattern, const std::vector<nn::NamedModule>& modules) {
  // A number is compared as a *, so that the nearest name is a pattern again.
  std::set<std::string> patterns;
  for (std::string name : callable_names(modules)) {
    for (std::size_t at = 0; (at = name.find_first_of("0123456789", at)) != std::string::npos; ++at)
      if (at > 0 && name[at - 1] == '.') name.replace(at, name.find_first_not_of("0123456789", at) - at, "*");
    patterns.insert(std::move(name));
  }
  const std::vector<std::string> candidates(patterns.begin(), patterns.end());
  const auto near = nearest_name(pattern, candidates);
  throw ConfigError("\"" + pattern + "\" names no module of the model" +
                    (near ? "; did you mean \"" + *near + "\"?" : "; its modules: " + join(candidates, ", ")));
}

}  // namespace

std::vector<WrapGroup> wrap_by_size(nn::Module& root, std::int64_t min_parameters) {
  TITAN_CHECK(min_parameters >= 1, "a group of less than one parameter");
  Grouping grouping(root);
  std::map<std::string, std::int64_t> own;  // parameters of each module that no module below it takes
  for (const auto& named : root.named_parameters()) {
    std::int64_t count = 1;
    for (const std::int64_t size : named.spec().global_shape) count *= size;
    own[std::string(parent_of(named.fqn))] += count;
  }
  const auto& modules = grouping.modules();
  for (auto module = modules.rbegin(); module != modules.rend(); ++module) {  // what is below comes first
    const auto& fqn = module->fqn;
    if (fqn.empty()) continue;
    const std::int64_t count = own[fqn];
    if (count >= min_parameters && !module->module->is_container()) {
      grouping.add(fqn);
    } else {
      own[std::string(parent_of(fqn))] += count;
    }
  }
  return grouping.finish();
}

std::vector<WrapGroup> wrap_by_name(nn::Module& root, const std::vector<std::string>& patterns) {
  Grouping grouping(root);
  for (const std::string& pattern : patterns) {
    bool names_one = false, names_parameters = false;
    for (const auto& [fqn, module] : grouping.modules()) {
      if (fqn.empty() || !matches(fqn, pattern)) continue;
      if (module->is_container())
        throw ConfigError("\"" + pattern + "\" names " + fqn +
                          ", a list of modules, which is not called itself; use \"" + fqn + ".*\"");
      names_one = true;
      if (module->named_parameters().empty()) continue;
      names_parameters = true;
      grouping.add(fqn);
    }
    if (!names_one) fail_unmatched(pattern, grouping.modules());
    if (!names_parameters) throw ConfigError("\"" + pattern + "\" names only modules without parameters; leave it out");
  }
  return grouping.finish();
}

void fully_shard(nn::Module& root, const std::vector<WrapGroup>& groups, const FullyShardOptions& options) {
  for (const WrapGroup& group : groups) fully_shard(group.modules, options);
  fully_shard(root, options);
}

}  // namespace titan::fsdp
