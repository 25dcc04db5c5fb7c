#include "optim/param_groups.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/pattern.h"
#include "base/text.h"
#include "config/keys/values/lr_factors.h"

namespace titan::optim {
namespace {

using Names = std::vector<std::string>;

// Parameters of a kind are known by the names that modules have in all models here.
struct Kind {
  std::string_view name;
  bool (*has)(const Names& parts);
};

bool any_ends_with(const Names& parts, std::string_view end) {
  return std::ranges::any_of(parts, [&](const std::string& part) { return part.ends_with(end); });
}

const Kind kKinds[] = {{"norm", [](const Names& parts) { return any_ends_with(parts, "norm"); }},
                       {"bias", [](const Names& parts) { return parts.back() == "bias"; }},
                       {"embedding", [](const Names& parts) {
                          return any_ends_with(parts, "embeddings") || any_ends_with(parts, "embedding");
                        }}};

// Returns patterns that match: names with * for numbers, and what they begin with, followed by *.
Names possible_patterns(const Names& fqns) {
  std::set<std::string> patterns;
  for (const std::string& fqn : fqns) {
    std::string begin;
    for (const std::string& part : split(fqn, '.')) {
      const bool is_number = part.find_first_not_of("0123456789") == std::string::npos;
      if (!begin.empty()) patterns.insert(begin + ".*");
      begin += (begin.empty() ? "" : ".") + (is_number ? "*" : part);
    }
    patterns.insert(begin);
  }
  return {patterns.begin(), patterns.end()};
}

[[noreturn]] void throw_unmatched(const std::string& key, const std::string& entry, const std::string& pattern,
                                  const Names& fqns) {
  Names known = possible_patterns(fqns);
  if (key == "optimizer.no_decay")
    for (const Kind& kind : kKinds) known.emplace_back(kind.name);
  const auto near = nearest_name(pattern, known);
  throw ConfigError(key + ": \"" + entry + "\" matches none of the model's " + std::to_string(fqns.size()) +
                        " parameters" + (near ? "; did you mean \"" + *near + "\"?" : ".") +
                        " Names are those of the checkpoint, such as \"" + fqns.front() + "\"; * is any text",
                    {key});
}

void apply_no_decay(const Names& entries, const Names& fqns, std::vector<ParameterRates>& rates) {
  for (const std::string& entry : entries) {
    const auto* const kind = std::ranges::find(kKinds, entry, &Kind::name);
    const bool is_kind = kind != std::end(kKinds);
    bool any = is_kind;  // a model may lack a kind: Llama has no biases
    for (std::size_t i = 0; i < fqns.size(); ++i) {
      if (!(is_kind ? kind->has(split(fqns[i], '.')) : matches_pattern(entry, fqns[i]))) continue;
      rates[i].weight_decay = 0;
      any = true;
    }
    if (!any) throw_unmatched("optimizer.no_decay", entry, entry, fqns);
  }
}

void apply_lr_factors(const Names& entries, const Names& fqns, std::vector<ParameterRates>& rates) {
  const std::string key = "optimizer.lr_factors";
  std::vector<std::optional<std::string>> taken_by(fqns.size());
  for (const std::string& entry : entries) {
    const auto [pattern, factor] = config::parse_lr_factor(entry);
    std::optional<std::string> earlier;
    bool any = false;
    for (std::size_t i = 0; i < fqns.size(); ++i) {
      if (!matches_pattern(pattern, fqns[i])) continue;
      if (taken_by[i]) {
        earlier = taken_by[i];
        continue;
      }
      any = true;
      taken_by[i] = entry;
      rates[i].lr_factor = factor;
    }
    if (!any && earlier)
      throw ConfigError(key + ": \"" + entry + "\" has no effect: all its parameters match \"" + *earlier +
                            "\" before it, and the first match counts; put it first",
                        {key});
    if (!any) throw_unmatched(key, entry, pattern, fqns);
  }
}

}  // namespace

std::vector<ParameterRates> rates_of(const config::Optimizer& options, const Names& fqns) {
  std::vector<ParameterRates> rates(fqns.size(), {.weight_decay = options.weight_decay});
  apply_no_decay(options.no_decay, fqns, rates);
  apply_lr_factors(options.lr_factors, fqns, rates);
  return rates;
}

std::vector<std::string> describe_groups(const std::vector<ParameterRates>& rates, const Names& fqns) {
  std::vector<ParameterRates> groups;
  for (const ParameterRates& each : rates)
    if (std::ranges::count(groups, each) == 0) groups.push_back(each);
  std::vector<std::string> lines;
  if (groups.size() < 2 && (groups.empty() || groups[0].lr_factor == 1)) return lines;
  for (const ParameterRates& group : groups) {
    Names names;
    for (std::size_t i = 0; i < fqns.size(); ++i)
      if (rates[i] == group) names.push_back(fqns[i]);
    lines.push_back(fmt::format("{} ({}{}): learning rate times {:g}, weight decay {:g}",
                                counted(std::ssize(names), "parameter"), names.front(), names.size() > 1 ? ", ..." : "",
                                group.lr_factor, group.weight_decay));
  }
  return lines;
}

}  // namespace titan::optim
