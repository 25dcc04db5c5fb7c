#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/text.h"
#include "config/keys/suggest.h"
#include "config/toml/document.h"
#include "sweep/plan/spec.h"

namespace titan::sweep {
namespace {

using config::FieldValue;
using config::Node;
using config::Position;
using config::StringList;

// The columns of metrics.jsonl that can be compared, and those of validation.jsonl under their table's name.
const StringList kObjectives = {
    "loss",         "max_loss",     "grad_norm",   "tokens_per_second", "tflops",          "mfu",
    "step_seconds", "data_seconds", "tokens_seen", "memory_peak_bytes", "validation.loss", "validation.perplexity"};
// Keys that the sweep gives every trial itself.
const StringList kOwnKeys = {"job.config_file", "job.dump_folder"};

struct Distribution {
  const char* name;
  Draw::Kind kind;
};
constexpr Distribution kDistributions[] = {{"uniform", Draw::Kind::kUniform},
                                           {"log_uniform", Draw::Kind::kLogUniform},
                                           {"int_uniform", Draw::Kind::kIntUniform},
                                           {"choice", Draw::Kind::kChoice}};

class Reader {
 public:
  Reader(config::Document document, bool base_must_exist)
      : document_(std::move(document)), base_must_exist_(base_must_exist) {}

  SweepSpec run() {
    const Node* sweep = document_.root().find("sweep");
    if (!sweep || !sweep->is_table()) {
      fail({1, 1}, "expected a table [sweep] that names the job and what to vary");
      config::throw_if_wrong(sorted_errors());
    }
    for (const auto& member : document_.root().members) {
      if (member.key != "sweep")
        fail(member.at, "unknown key " + member.key +
                            "; a sweep's file has [sweep] and tables inside it. What the job "
                            "itself is given stands in the file that sweep.base names");
    }
    read_table(*sweep);
    check_whole(*sweep);
    config::throw_if_wrong(sorted_errors());
    return std::move(spec_);
  }

 private:
  void fail(const Position& at, const std::string& message) { errors_.emplace(at, document_.error(at, message)); }

  StringList sorted_errors() const {
    StringList out;
    for (const auto& [at, message] : errors_) out.push_back(message);
    return out;
  }

  void wrong(const std::string& key, const Node& node, const std::string& expected) {
    fail(node.at, "sweep." + key + ": expected " + expected + "; found " + describe_found(node));
  }

  // ------------------------------------------------------------------------------------------- scalars of [sweep]

  void read_string(const std::string& key, const Node& node, std::string& out) {
    if (!node.string() || node.string()->empty()) return wrong(key, node, "a string, not empty");
    out = *node.string();
  }

  void read_choice(const std::string& key, const Node& node, const StringList& choices, std::string& out) {
    if (node.string() && std::ranges::count(choices, *node.string()) > 0) {
      out = *node.string();
      return;
    }
    const auto near = node.string() ? nearest_name(*node.string(), choices) : std::nullopt;
    fail(node.at, "sweep." + key + ": expected one of " + join(choices, ", ") + "; found " + describe_found(node) +
                      (near ? "; did you mean \"" + *near + "\"?" : ""));
  }

  template <class Out>
  void read_integer(const std::string& key, const Node& node, std::int64_t min, Out& out) {
    const auto* value = std::get_if<std::int64_t>(&node.scalar);
    if (!value || *value < min) return wrong(key, node, "an integer, at least " + std::to_string(min));
    out = *value;
  }

  void read_bool(const std::string& key, const Node& node, bool& out) {
    if (const auto* value = std::get_if<bool>(&node.scalar)) {
      out = *value;
    } else {
      wrong(key, node, "true or false");
    }
  }

  void read_minutes(const std::string& key, const Node& node, double& out) {
    const auto value = number(node);
    if (!value || *value < 0) return wrong(key, node, "a number, at least 0");
    out = *value;
  }

  static std::optional<double> number(const Node& node) {
    if (const auto* integer = std::get_if<std::int64_t>(&node.scalar)) return static_cast<double>(*integer);
    const auto* value = std::get_if<double>(&node.scalar);
    return value && std::isfinite(*value) ? std::optional(*value) : std::nullopt;
  }

  using Handler = std::function<void(const std::string&, const Node&)>;

  // Calls the handler of every member of `table`; members without one are faults.
  void read_members(const Node& table, const std::string& prefix, const std::map<std::string, Handler>& handlers) {
    StringList names;
    for (const auto& [name, handler] : handlers) names.push_back(name);
    for (const auto& member : table.members) {
      const auto it = handlers.find(member.key);
      if (it != handlers.end()) {
        it->second(prefix + member.key, member.value);
        continue;
      }
      const auto near = nearest_name(member.key, names);
      fail(member.at,
           "unknown key sweep." + prefix + member.key +
               (near ? "; did you mean sweep." + prefix + *near + "?" : "; keys here are " + join(names, ", ")));
    }
  }

  void read_table(const Node& sweep) {
    const auto text = [this](std::string& out) {
      return [this, &out](const std::string& key, const Node& node) { read_string(key, node, out); };
    };
    const auto integer = [this](auto& out, std::int64_t min) {
      return [this, &out, min](const std::string& key, const Node& node) { read_integer(key, node, min, out); };
    };
    const auto choice = [this](std::string& out, const StringList& choices) {
      return [this, &out, choices](const std::string& key, const Node& node) { read_choice(key, node, choices, out); };
    };
    const auto table = [this](void (Reader::*read)(const Node&)) {
      return [this, read](const std::string& key, const Node& node) {
        if (!node.is_table()) return wrong(key, node, "a table, [sweep." + key + "]");
        (this->*read)(node);
      };
    };
    read_members(sweep, "",
                 {{"name", text(spec_.name)},
                  {"base", text(base_)},
                  {"folder", text(folder_)},
                  {"objective", choice(spec_.objective.field, kObjectives)},
                  {"reduction", choice(spec_.objective.reduction, {"last", "min", "max", "mean"})},
                  {"window", integer(spec_.objective.window, 1)},
                  {"direction", choice(direction_, {"min", "max"})},
                  {"max_parallel", integer(spec_.max_parallel, 1)},
                  {"nproc", integer(spec_.nproc, 1)},
                  {"cores", integer(spec_.cores, 1)},
                  {"gpus", integer(spec_.gpus, 0)},
                  {"seed", integer(spec_.seed, 0)},
                  {"stop_on_failure",
                   [this](const std::string& key, const Node& node) { read_bool(key, node, spec_.stop_on_failure); }},
                  {"retries", integer(spec_.retries, 0)},
                  {"timeout_minutes", [this](const std::string& key,
                                             const Node& node) { read_minutes(key, node, spec_.timeout_minutes); }},
                  {"launcher", text(spec_.launcher)},
                  {"grid", table(&Reader::read_grid)},
                  {"zip", table(&Reader::read_zip)},
                  {"list", [this](const std::string&, const Node& node) { read_list(node); }},
                  {"random", table(&Reader::read_random)},
                  {"asha", table(&Reader::read_asha)}});
  }

  void read_asha(const Node& table) {
    Asha asha;
    const auto integer = [this](auto& out, std::int64_t min) {
      return [this, &out, min](const std::string& key, const Node& node) { read_integer(key, node, min, out); };
    };
    read_members(table, "asha.",
                 {{"min_steps", integer(asha.min_steps, 1)},
                  {"reduction_factor", integer(asha.reduction_factor, 2)},
                  {"max_steps", integer(asha.max_steps, 1)}});
    if (!table.find("min_steps")) fail(table.at, "sweep.asha.min_steps is missing: the steps of the first rung");
    if (asha.max_steps && *asha.max_steps <= asha.min_steps)
      fail(table.find("max_steps")->at, "sweep.asha.max_steps must be above sweep.asha.min_steps, " +
                                            std::to_string(asha.min_steps) + "; found " +
                                            std::to_string(*asha.max_steps));
    spec_.asha = asha;
  }

  // ------------------------------------------------------------------------------------------- keys of the job

  struct Leaf {
    const config::Field* field;
    Position at;
    const Node* node;
  };

  // The keys of a job below `table`: "optimizer.lr" = ... as well as optimizer.lr = ...
  std::vector<Leaf> leaves(const Node& table, const std::string& prefix = "") {
    std::vector<Leaf> out;
    for (const auto& member : table.members) {
      const std::string key = prefix + member.key;
      if (const auto* field = config::find_field(key)) {
        if (std::ranges::count(kOwnKeys, key) > 0) fail(member.at, key + ": the sweep sets it for every trial");
        out.push_back({field, member.at, &member.value});
      } else if (member.value.is_table() && config::is_table(key)) {
        for (const auto& leaf : leaves(member.value, key + ".")) out.push_back(leaf);
      } else {
        auto likely = config::likely_keys(key);
        for (std::string& name : likely) name = "\"" + name + "\"";
        fail(member.at, "unknown key " + key + " of a job" +
                            (likely.empty() ? "; titan-train --help lists all keys" : config::did_you_mean(likely)));
      }
    }
    return out;
  }

  // Notes that `block` varies the key; another block that does so too is a fault.
  void claim(const Leaf& leaf, const std::string& block) {
    const auto [it, is_new] = claimed_.emplace(leaf.field->key, Claim{block, leaf.at});
    if (!is_new && it->second.block != block)
      fail(leaf.at, leaf.field->key + " stands in [" + it->second.block + "] and in [" + block + "]; keep one");
  }

  std::optional<FieldValue> read_value(const config::Field& field, const Node& node) {
    const auto value = to_field_value(field, node);
    if (!value) {
      fail(node.at, wrong_type(field, node));
      return std::nullopt;
    }
    if (const auto fault = find_fault(field, *value)) {
      fail(node.at, *fault);
      return std::nullopt;
    }
    return value;
  }

  std::vector<FieldValue> read_values(const config::Field& field, const Node& node) {
    std::vector<FieldValue> out;
    if (!node.is_array() || node.items.empty()) {
      fail(node.at, field.key + ": expected a list of values, [A, B, ...]; found " +
                        (node.is_array() ? "an empty one" : describe_found(node)));
      return out;
    }
    for (const Node& item : node.items) {
      auto value = read_value(field, item);
      if (!value) continue;
      if (std::ranges::count(out, *value) > 0)
        fail(item.at, field.key + ": " + to_toml_value(*value) + " stands here twice");
      out.push_back(std::move(*value));
    }
    return out;
  }

  void read_grid(const Node& table) {
    for (const Leaf& leaf : leaves(table)) {
      claim(leaf, "sweep.grid");
      spec_.grid.push_back({leaf.field->key, read_values(*leaf.field, *leaf.node)});
    }
    if (table.members.empty()) fail(table.at, "[sweep.grid] is empty; give it keys of the job with lists of values");
  }

  void read_zip(const Node& table) {
    for (const Leaf& leaf : leaves(table)) {
      claim(leaf, "sweep.zip");
      std::vector<FieldValue> values;
      if (!leaf.node->is_array() || leaf.node->items.empty()) {
        fail(leaf.node->at, leaf.field->key + ": expected a list of values, [A, B, ...]");
        continue;
      }
      for (const Node& item : leaf.node->items)
        if (auto value = read_value(*leaf.field, item)) values.push_back(std::move(*value));
      const auto length = leaf.node->items.size();
      if (!spec_.zip.empty() && length != zip_length_)
        fail(leaf.node->at, leaf.field->key + " has " + std::to_string(length) + " values, " + spec_.zip.front().key +
                                " has " + std::to_string(zip_length_) + ": the lists of [sweep.zip] are of one length");
      if (spec_.zip.empty()) zip_length_ = length;
      spec_.zip.push_back({leaf.field->key, std::move(values)});
    }
    if (table.members.empty()) fail(table.at, "[sweep.zip] is empty; give it keys of the job with lists of values");
  }

  void read_list(const Node& node) {
    if (!node.is_array() || node.items.empty()) return wrong("list", node, "tables, [[sweep.list]]");
    for (const Node& item : node.items) {
      if (!item.is_table()) {
        wrong("list", item, "tables, [[sweep.list]]");
        continue;
      }
      std::vector<Assignment> entry;
      for (const Leaf& leaf : leaves(item)) {
        claim(leaf, "sweep.list");
        if (auto value = read_value(*leaf.field, *leaf.node)) entry.push_back({leaf.field->key, std::move(*value)});
      }
      if (std::ranges::count(spec_.list, entry) > 0) fail(item.at, "this entry of [[sweep.list]] stands here twice");
      spec_.list.push_back(std::move(entry));
    }
  }

  void read_random(const Node& table) {
    Node keys = table;
    std::erase_if(keys.members, [](const auto& member) { return member.key == "num_trials"; });
    if (const Node* count = table.find("num_trials")) {
      read_integer("random.num_trials", *count, 1, spec_.num_trials);
    } else {
      fail(table.at, "sweep.random.num_trials is missing: how many times to draw");
    }
    for (const Leaf& leaf : leaves(keys)) {
      claim(leaf, "sweep.random");
      read_draw(leaf);
    }
    if (keys.members.empty()) fail(table.at, "[sweep.random] draws no key of the job");
  }

  void read_draw(const Leaf& leaf) {
    const std::string example = leaf.field->key +
                                ": expected one of {uniform = [LOW, HIGH]}, {log_uniform = [LOW, HIGH]}, "
                                "{int_uniform = [LOW, HIGH]}, {choice = [A, B, ...]}";
    const Node& node = *leaf.node;
    if (!node.is_table() || node.members.size() != 1) return fail(node.at, example + "; found " + describe_found(node));
    const auto& [name, at, range] = node.members.front();
    const auto* found = std::ranges::find(kDistributions, name, [](const auto& d) { return std::string(d.name); });
    if (found == std::end(kDistributions)) return fail(at, example + "; found " + name);
    Draw draw{.key = leaf.field->key, .kind = found->kind, .choices = {}};
    if (draw.kind == Draw::Kind::kChoice) {
      draw.choices = read_values(*leaf.field, range);
    } else if (!read_range(leaf, range, draw)) {
      return;
    }
    spec_.random.push_back(std::move(draw));
  }

  bool read_range(const Leaf& leaf, const Node& range, Draw& draw) {
    const auto& field = *leaf.field;
    const bool integers = draw.kind == Draw::Kind::kIntUniform;
    const auto wanted = integers ? config::ValueKind::kInt : config::ValueKind::kFloat;
    if (field.kind != wanted) {
      const std::string hint = field.kind == config::ValueKind::kInt     ? "int_uniform"
                               : field.kind == config::ValueKind::kFloat ? "uniform or log_uniform"
                                                                         : "choice";
      fail(leaf.node->at, field.key + " is " + describe_kind(field) + "; draw it with " + hint);
      return false;
    }
    if (!range.is_array() || range.items.size() != 2) {
      fail(range.at, field.key + ": expected a range, [LOW, HIGH]; found " + describe_found(range));
      return false;
    }
    const auto low = read_value(field, range.items[0]), high = read_value(field, range.items[1]);
    if (!low || !high) return false;
    draw.low = *number(range.items[0]);
    draw.high = *number(range.items[1]);
    if (draw.low >= draw.high) fail(range.at, field.key + ": expected LOW below HIGH in [LOW, HIGH]");
    if (draw.kind == Draw::Kind::kLogUniform && draw.low <= 0)
      fail(range.items[0].at, field.key + ": a log-uniform range begins above 0; found " + to_toml_value(*low));
    return true;
  }

  // ------------------------------------------------------------------------------------------- the whole

  void check_whole(const Node& sweep) {
    const std::filesystem::path file = document_.name();
    if (spec_.name.empty()) spec_.name = file.stem().string();
    if (!sweep.find("base")) fail(sweep.at, "sweep.base is missing: the TOML file of the job that the trials vary");
    spec_.base = file.parent_path() / base_;
    check_base(sweep);
    spec_.folder = folder_.empty() ? "outputs/sweeps/" + spec_.name : folder_;
    const bool grows = spec_.objective.field == "tokens_per_second" || spec_.objective.field == "tflops" ||
                       spec_.objective.field == "mfu" || spec_.objective.field == "tokens_seen";
    spec_.objective.maximize = direction_.empty() ? grows : direction_ == "max";
    if (claimed_.empty() && errors_.empty())
      fail(sweep.at, "nothing varies: add [sweep.grid], [sweep.random], [sweep.zip] or [[sweep.list]]");
    if (spec_.asha) check_asha_keys();
  }

  void check_base(const Node& sweep) {
    std::error_code error;
    const Node* node = sweep.find("base");
    if (!node || base_.empty() || !base_must_exist_ || std::filesystem::exists(spec_.base, error)) return;
    const auto folder = std::filesystem::absolute(spec_.base.parent_path().empty() ? "." : spec_.base.parent_path());
    fail(node->at,
         "sweep.base = \"" + base_ + "\": no such file (looked in " + folder.lexically_normal().string() + ")");
  }

  void check_asha_keys() {
    for (const char* key : {"training.steps", "checkpoint.enable", "checkpoint.last_save_model_only"}) {
      if (const auto claim = claimed_.find(key); claim != claimed_.end())
        fail(claim->second.at, std::string(key) +
                                   " cannot vary between trials: [sweep.asha] decides how far each "
                                   "trains and needs its checkpoints");
    }
  }

  config::Document document_;
  bool base_must_exist_;
  SweepSpec spec_;
  std::string base_, folder_, direction_;
  std::size_t zip_length_ = 0;
  struct Claim {
    std::string block;  // that varies a key of the job
    Position at;
  };
  std::map<std::string, Claim> claimed_;  // by key
  std::multimap<Position, std::string> errors_;
};

}  // namespace

SweepSpec read_spec_text(std::string_view text, const std::string& name) { return Reader({text, name}, false).run(); }

SweepSpec read_spec(const std::filesystem::path& file) { return Reader(config::load_document(file), true).run(); }

std::vector<std::string> swept_keys(const SweepSpec& spec) {
  std::vector<std::string> keys;
  const auto add = [&](const std::string& key) {
    if (std::ranges::count(keys, key) == 0) keys.push_back(key);
  };
  for (const auto& axis : spec.grid) add(axis.key);
  for (const auto& axis : spec.zip) add(axis.key);
  for (const auto& entry : spec.list)
    for (const auto& assignment : entry) add(assignment.key);
  for (const auto& draw : spec.random) add(draw.key);
  return keys;
}

}  // namespace titan::sweep
