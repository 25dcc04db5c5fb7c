#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "config/toml/document.h"
#include "lab/sweep/plan/file_faults.h"
#include "lab/sweep/plan/sweep_spec.h"
#include "lab/sweep/plan/varied_keys.h"

namespace titan::sweep {
namespace {

using config::Node;
using config::StringList;

// Columns of metrics.jsonl that can be compared, and those of validation.jsonl under their table's name.
const StringList kObjectives = {
    "loss",         "max_loss",     "grad_norm",   "tokens_per_second", "tflops",          "mfu",
    "step_seconds", "data_seconds", "tokens_seen", "memory_peak_bytes", "validation.loss", "validation.perplexity"};

// Scores of evaluation.jsonl that can be compared, after the name of their task.
const StringList kShares = {"acc", "acc_norm"}, kPerplexities = {"word_perplexity", "byte_perplexity", "bits_per_byte"};

// Returns "acc" of "evaluation.arc_easy/acc"; nullopt for a field of another form.
std::optional<std::string> score_of(const std::string& field) {
  const auto slash = field.rfind('/');
  const std::string begin = "evaluation.";
  if (!field.starts_with(begin) || slash == std::string::npos || slash <= begin.size()) return std::nullopt;
  std::string score = field.substr(slash + 1);
  if (std::ranges::count(kShares, score) + std::ranges::count(kPerplexities, score) == 0) return std::nullopt;
  return score;
}

bool is_objective(const std::string& field) { return std::ranges::count(kObjectives, field) > 0 || score_of(field); }

std::string known_objectives() {
  return join(kObjectives, ", ") + ", and evaluation.TASK/SCORE with a score of " + join(kShares, ", ") + ", " +
         join(kPerplexities, ", ");
}

// True if more is better.
bool grows(const std::string& field) {
  if (const auto score = score_of(field)) return std::ranges::count(kShares, *score) > 0;
  return field == "tokens_per_second" || field == "tflops" || field == "mfu" || field == "tokens_seen";
}

class Reader {
 public:
  Reader(config::Document document, bool base_must_exist)
      : faults_(std::move(document)), base_must_exist_(base_must_exist) {}

  SweepSpec run() {
    const Node& root = faults_.document().root();
    const Node* sweep = root.find("sweep");
    if (!sweep || !sweep->is_table()) {
      faults_.add({1, 1}, "expected a table [sweep] that names the job and what to vary");
      faults_.throw_if_any();
    }
    for (const auto& member : root.members) {
      if (member.key != "sweep")
        faults_.add(member.at, "unknown key " + member.key +
                                   "; a sweep's file has [sweep] and tables inside it. What the job "
                                   "itself is given stands in the file that sweep.base names");
    }
    read_table(*sweep);
    check_whole(*sweep);
    faults_.throw_if_any();
    return std::move(spec_);
  }

 private:
  // ------------------------------------------------------------------------------------------- scalars of [sweep]

  void read_string(const std::string& key, const Node& node, std::string& out) {
    if (!node.string() || node.string()->empty()) return faults_.add_wrong(key, node, "a string, not empty");
    out = *node.string();
  }

  void read_choice(const std::string& key, const Node& node, const StringList& choices, std::string& out) {
    if (node.string() && std::ranges::count(choices, *node.string()) > 0) {
      out = *node.string();
      return;
    }
    const auto near = node.string() ? nearest_name(*node.string(), choices) : std::nullopt;
    faults_.add(node.at, "sweep." + key + ": expected one of " + join(choices, ", ") + "; found " +
                             describe_found(node) + (near ? "; did you mean \"" + *near + "\"?" : ""));
  }

  void read_objective(const std::string& key, const Node& node) {
    if (node.string() && is_objective(*node.string())) {
      spec_.objective.field = *node.string();
      return;
    }
    const auto near = node.string() ? nearest_name(*node.string(), kObjectives) : std::nullopt;
    faults_.add(node.at, "sweep." + key + ": expected one of " + known_objectives() + "; found " +
                             describe_found(node) + (near ? "; did you mean \"" + *near + "\"?" : ""));
  }

  template <class Out>
  void read_integer(const std::string& key, const Node& node, std::int64_t min, Out& out) {
    const auto* value = std::get_if<std::int64_t>(&node.scalar);
    if (!value || *value < min) return faults_.add_wrong(key, node, "an integer, at least " + std::to_string(min));
    out = *value;
  }

  void read_bool(const std::string& key, const Node& node, bool& out) {
    if (const auto* value = std::get_if<bool>(&node.scalar)) {
      out = *value;
    } else {
      faults_.add_wrong(key, node, "true or false");
    }
  }

  static std::optional<double> number(const Node& node) {
    if (const auto* integer = std::get_if<std::int64_t>(&node.scalar)) return static_cast<double>(*integer);
    const auto* value = std::get_if<double>(&node.scalar);
    return value && std::isfinite(*value) ? std::optional(*value) : std::nullopt;
  }

  void read_minutes(const std::string& key, const Node& node, double& out) {
    const auto value = number(node);
    if (!value || *value < 0) return faults_.add_wrong(key, node, "a number, at least 0");
    out = *value;
  }

  using Handler = std::function<void(const std::string&, const Node&)>;

  // Calls the handler of every member of `table`; a member without a handler is a fault.
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
      faults_.add(member.at,
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
    const auto table = [this](const std::function<void(const Node&)>& read) {
      return [this, read](const std::string& key, const Node& node) {
        if (!node.is_table()) return faults_.add_wrong(key, node, "a table, [sweep." + key + "]");
        read(node);
      };
    };
    read_members(sweep, "",
                 {{"name", text(spec_.name)},
                  {"base", text(base_)},
                  {"folder", text(folder_)},
                  {"objective", [this](const std::string& key, const Node& node) { read_objective(key, node); }},
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
                  {"grid", table([this](const Node& node) { varied_.read_grid(node); })},
                  {"zip", table([this](const Node& node) { varied_.read_zip(node); })},
                  {"list", [this](const std::string&, const Node& node) { varied_.read_list(node); }},
                  {"random", table([this](const Node& node) { read_random(node); })},
                  {"asha", table([this](const Node& node) { read_asha(node); })}});
  }

  void read_random(const Node& table) {
    Node keys = table;
    std::erase_if(keys.members, [](const auto& member) { return member.key == "num_trials"; });
    if (const Node* count = table.find("num_trials")) {
      read_integer("random.num_trials", *count, 1, spec_.num_trials);
    } else {
      faults_.add(table.at, "sweep.random.num_trials is missing: how many times to draw");
    }
    varied_.read_random(keys);
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
    if (!table.find("min_steps")) faults_.add(table.at, "sweep.asha.min_steps is missing: the steps of the first rung");
    if (asha.max_steps && *asha.max_steps <= asha.min_steps)
      faults_.add(table.find("max_steps")->at, "sweep.asha.max_steps must be above sweep.asha.min_steps, " +
                                                   std::to_string(asha.min_steps) + "; found " +
                                                   std::to_string(*asha.max_steps));
    spec_.asha = asha;
  }

  // ------------------------------------------------------------------------------------------- checks

  void check_whole(const Node& sweep) {
    const std::filesystem::path file = faults_.document().name();
    if (spec_.name.empty()) spec_.name = file.stem().string();
    if (!sweep.find("base"))
      faults_.add(sweep.at, "sweep.base is missing: the TOML file of the job that the trials vary");
    spec_.base = file.parent_path() / base_;
    check_base(sweep);
    spec_.folder = folder_.empty() ? "outputs/sweeps/" + spec_.name : folder_;
    spec_.objective.maximize = direction_.empty() ? grows(spec_.objective.field) : direction_ == "max";
    if (varied_.empty() && faults_.empty())
      faults_.add(sweep.at, "nothing varies: add [sweep.grid], [sweep.random], [sweep.zip] or [[sweep.list]]");
    if (spec_.asha) check_asha_keys();
  }

  void check_base(const Node& sweep) {
    std::error_code error;
    const Node* node = sweep.find("base");
    if (!node || base_.empty() || !base_must_exist_ || std::filesystem::exists(spec_.base, error)) return;
    const auto folder = std::filesystem::absolute(spec_.base.parent_path().empty() ? "." : spec_.base.parent_path());
    faults_.add(node->at,
                "sweep.base = \"" + base_ + "\": no such file (looked in " + folder.lexically_normal().string() + ")");
  }

  void check_asha_keys() {
    for (const char* key : {"training.steps", "checkpoint.enable", "checkpoint.last_save_model_only"}) {
      if (const auto at = varied_.place_of(key))
        faults_.add(*at, std::string(key) +
                             " cannot vary between trials: [sweep.asha] decides how far each "
                             "trains and needs its checkpoints");
    }
  }

  FileFaults faults_;
  bool base_must_exist_;
  SweepSpec spec_;
  VariedKeys varied_{faults_, spec_};
  std::string base_, folder_, direction_;
};

}  // namespace

SweepSpec read_spec_text(std::string_view text, const std::string& name) { return Reader({text, name}, false).run(); }

Objective objective_named(const std::string& field) {
  if (!is_objective(field)) {
    const auto near = nearest_name(field, kObjectives);
    throw ConfigError("error: --objective " + field + ": no such column" +
                      (near ? "; did you mean " + *near + "?" : ".") + " Known are " + known_objectives());
  }
  return {.field = field, .maximize = grows(field)};
}

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
