#include "lab/sweep/plan/varied_keys.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "config/keys/suggest.h"

namespace titan::sweep {
namespace {

using config::FieldValue;
using config::Node;
using config::Position;

// Keys that the sweep sets for every trial.
const std::vector<std::string> kOwnKeys = {"job.config_file", "job.dump_folder"};

struct Distribution {
  const char* name;
  Draw::Kind kind;
};
constexpr Distribution kDistributions[] = {{"uniform", Draw::Kind::kUniform},
                                           {"log_uniform", Draw::Kind::kLogUniform},
                                           {"int_uniform", Draw::Kind::kIntUniform},
                                           {"choice", Draw::Kind::kChoice}};

constexpr double kDrawsEnd = 0x1p53;  // a draw has 53 bits, and a double holds all integers below

}  // namespace

// Returns the job keys below `table`, written as "optimizer.lr" = ... or as optimizer.lr = ...
std::vector<VariedKeys::Leaf> VariedKeys::leaves(const Node& table, const std::string& prefix) {
  std::vector<Leaf> out;
  for (const auto& member : table.members) {
    const std::string key = prefix + member.key;
    if (const auto* field = config::find_field(key)) {
      if (std::ranges::count(kOwnKeys, key) > 0) faults_.add(member.at, key + ": the sweep sets it for every trial");
      out.push_back({field, member.at, &member.value});
    } else if (member.value.is_table() && config::is_table(key)) {
      for (const auto& leaf : leaves(member.value, key + ".")) out.push_back(leaf);
    } else {
      auto likely = config::likely_keys(key);
      for (std::string& name : likely) name = "\"" + name + "\"";
      faults_.add(member.at,
                  "unknown key " + key + " of a job" +
                      (likely.empty() ? "; titan-train --help lists all keys" : config::did_you_mean(likely)));
    }
  }
  return out;
}

// Records that `block` varies the key; a fault if another block does too.
void VariedKeys::claim(const Leaf& leaf, const std::string& block) {
  const auto [it, is_new] = claimed_.emplace(leaf.field->key, Claim{block, leaf.at});
  if (!is_new && it->second.block != block)
    faults_.add(leaf.at, leaf.field->key + " stands in [" + it->second.block + "] and in [" + block + "]; keep one");
}

std::optional<FieldValue> VariedKeys::read_value(const config::Field& field, const Node& node) {
  const auto value = to_field_value(field, node);
  if (!value) {
    faults_.add(node.at, wrong_type(field, node));
    return std::nullopt;
  }
  if (const auto fault = find_fault(field, *value)) {
    faults_.add(node.at, *fault);
    return std::nullopt;
  }
  return value;
}

std::vector<FieldValue> VariedKeys::read_values(const config::Field& field, const Node& node) {
  std::vector<FieldValue> out;
  if (!node.is_array() || node.items.empty()) {
    faults_.add(node.at, field.key + ": expected a list of values, [A, B, ...]; found " +
                             (node.is_array() ? "an empty one" : describe_found(node)));
    return out;
  }
  if (std::ssize(node.items) > kMostTrials) {
    faults_.add(node.at, field.key + ": " + std::to_string(node.items.size()) + " values; a sweep has at most " +
                             std::to_string(kMostTrials) + " trials");
    return out;
  }
  for (const Node& item : node.items) {
    auto value = read_value(field, item);
    if (!value) continue;
    if (std::ranges::count(out, *value) > 0)
      faults_.add(item.at, field.key + ": " + to_toml_value(*value) + " stands here twice");
    out.push_back(std::move(*value));
  }
  return out;
}

void VariedKeys::read_grid(const Node& table) {
  for (const Leaf& leaf : leaves(table)) {
    claim(leaf, "sweep.grid");
    spec_.grid.push_back({leaf.field->key, read_values(*leaf.field, *leaf.node)});
  }
  if (table.members.empty())
    faults_.add(table.at, "[sweep.grid] is empty; give it keys of the job with lists of values");
}

void VariedKeys::read_zip(const Node& table) {
  for (const Leaf& leaf : leaves(table)) {
    claim(leaf, "sweep.zip");
    std::vector<FieldValue> values;
    if (!leaf.node->is_array() || leaf.node->items.empty()) {
      faults_.add(leaf.node->at, leaf.field->key + ": expected a list of values, [A, B, ...]");
      continue;
    }
    for (const Node& item : leaf.node->items)
      if (auto value = read_value(*leaf.field, item)) values.push_back(std::move(*value));
    const auto length = leaf.node->items.size();
    if (!spec_.zip.empty() && length != zip_length_)
      faults_.add(leaf.node->at, leaf.field->key + " has " + std::to_string(length) + " values, " +
                                     spec_.zip.front().key + " has " + std::to_string(zip_length_) +
                                     ": the lists of [sweep.zip] are of one length");
    if (spec_.zip.empty()) zip_length_ = length;
    spec_.zip.push_back({leaf.field->key, std::move(values)});
  }
  if (table.members.empty())
    faults_.add(table.at, "[sweep.zip] is empty; give it keys of the job with lists of values");
}

void VariedKeys::read_list(const Node& node) {
  if (!node.is_array() || node.items.empty()) return faults_.add_wrong("list", node, "tables, [[sweep.list]]");
  for (const Node& item : node.items) {
    if (!item.is_table()) {
      faults_.add_wrong("list", item, "tables, [[sweep.list]]");
      continue;
    }
    std::vector<Assignment> entry;
    for (const Leaf& leaf : leaves(item)) {
      claim(leaf, "sweep.list");
      if (auto value = read_value(*leaf.field, *leaf.node)) entry.push_back({leaf.field->key, std::move(*value)});
    }
    if (std::ranges::count(spec_.list, entry) > 0)
      faults_.add(item.at, "this entry of [[sweep.list]] stands here twice");
    spec_.list.push_back(std::move(entry));
  }
}

void VariedKeys::read_random(const Node& table) {
  for (const Leaf& leaf : leaves(table)) {
    claim(leaf, "sweep.random");
    read_draw(leaf);
  }
  if (table.members.empty()) faults_.add(table.at, "[sweep.random] draws no key of the job");
}

void VariedKeys::read_draw(const Leaf& leaf) {
  const std::string example = leaf.field->key +
                              ": expected one of {uniform = [LOW, HIGH]}, {log_uniform = [LOW, HIGH]}, "
                              "{int_uniform = [LOW, HIGH]}, {choice = [A, B, ...]}";
  const Node& node = *leaf.node;
  if (!node.is_table() || node.members.size() != 1)
    return faults_.add(node.at, example + "; found " + describe_found(node));
  const auto& [name, at, range] = node.members.front();
  const auto* found = std::ranges::find(kDistributions, name, [](const auto& d) { return std::string(d.name); });
  if (found == std::end(kDistributions)) return faults_.add(at, example + "; found " + name);
  Draw draw{.key = leaf.field->key, .kind = found->kind, .choices = {}};
  if (draw.kind == Draw::Kind::kChoice) {
    draw.choices = read_values(*leaf.field, range);
  } else if (!read_range(leaf, range, draw)) {
    return;
  }
  spec_.random.push_back(std::move(draw));
}

// "None" is a valid value of an optional key, but not a valid bound.
std::optional<double> VariedKeys::read_bound(const config::Field& field, const Node& node) {
  config::Field bound = field;
  bound.optional = false;
  const auto value = read_value(bound, node);
  if (!value) return std::nullopt;
  if (const auto* integer = std::get_if<std::int64_t>(&*value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&*value)) return *number;
  faults_.add(node.at, wrong_type(bound, node));
  return std::nullopt;
}

bool VariedKeys::read_range(const Leaf& leaf, const Node& range, Draw& draw) {
  const auto& field = *leaf.field;
  const bool integers = draw.kind == Draw::Kind::kIntUniform;
  const auto wanted = integers ? config::ValueKind::kInt : config::ValueKind::kFloat;
  if (field.kind != wanted) {
    const std::string hint = field.kind == config::ValueKind::kInt     ? "int_uniform"
                             : field.kind == config::ValueKind::kFloat ? "uniform or log_uniform"
                                                                       : "choice";
    faults_.add(leaf.node->at, field.key + " is " + describe_kind(field) + "; draw it with " + hint);
    return false;
  }
  if (!range.is_array() || range.items.size() != 2) {
    faults_.add(range.at, field.key + ": expected a range, [LOW, HIGH]; found " + describe_found(range));
    return false;
  }
  const auto low = read_bound(field, range.items[0]), high = read_bound(field, range.items[1]);
  if (!low || !high) return false;
  draw.low = *low;
  draw.high = *high;
  const auto refuse = [&](const std::string& expected) {
    faults_.add(range.at, field.key + ": " + expected + "; found " + describe_found(range.items[0]) + " and " +
                              describe_found(range.items[1]));
    return false;
  };
  if (integers && std::max(-draw.low, draw.high) >= kDrawsEnd)
    return refuse("int_uniform draws numbers between -2^53 and 2^53");
  if (draw.kind == Draw::Kind::kLogUniform && draw.low > 0 && !std::isfinite(draw.high / draw.low))
    return refuse("log_uniform needs a HIGH of at most 1e308 times LOW");
  if (!std::isfinite(draw.high - draw.low)) return refuse("a range is at most 1e308 wide");
  if (draw.low >= draw.high) faults_.add(range.at, field.key + ": expected LOW below HIGH in [LOW, HIGH]");
  if (draw.kind == Draw::Kind::kLogUniform && draw.low <= 0)
    faults_.add(range.items[0].at,
                field.key + ": a log-uniform range begins above 0; found " + to_toml_value(FieldValue(*low)));
  return true;
}

std::optional<Position> VariedKeys::place_of(const std::string& key) const {
  const auto claim = claimed_.find(key);
  return claim == claimed_.end() ? std::nullopt : std::optional(claim->second.at);
}

}  // namespace titan::sweep
