#include "lab/sweep/plan/plan.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "config/keys/values/evaluation_tasks.h"
#include "config/load.h"
#include "config/paths.h"
#include "config/validate.h"

namespace titan::sweep {
namespace {

using config::FieldValue;
using Values = std::vector<Assignment>;

constexpr std::size_t kNumberedName = 9;  // bytes of "trial-000"

// SplitMix64's finalizer: every input bit flips half of the output bits on average.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// FNV-1a. Unlike std::hash it gives the same draws on every platform.
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

// Uniform in [0, 1).
double unit_draw(std::int64_t seed, const std::string& key, std::int64_t index) {
  const std::uint64_t bits =
      mix(mix(mix(static_cast<std::uint64_t>(seed)) ^ hash(key)) ^ static_cast<std::uint64_t>(index));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Rounds to six digits, so that the value in the trial's name and file is the one that is used.
double six_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return std::strtod(text, nullptr);
}

FieldValue draw_value(const Draw& draw, double u) {
  switch (draw.kind) {
    case Draw::Kind::kUniform:
      return std::clamp(six_digits(draw.low + u * (draw.high - draw.low)), draw.low, draw.high);
    case Draw::Kind::kLogUniform:
      return std::clamp(six_digits(draw.low * std::pow(draw.high / draw.low, u)), draw.low, draw.high);
    case Draw::Kind::kIntUniform:
      return std::min(static_cast<std::int64_t>(draw.low + std::floor(u * (draw.high - draw.low + 1))),
                      static_cast<std::int64_t>(draw.high));
    case Draw::Kind::kChoice:
      return draw.choices[static_cast<std::size_t>(u * static_cast<double>(draw.choices.size()))];
  }
  throw InternalError("a draw of no known kind");
}

// Combines every member of `a` with every member of `b`, those of `b` fastest.
std::vector<Values> product(const std::vector<Values>& a, const std::vector<Values>& b) {
  std::vector<Values> out;
  for (const Values& first : a) {
    for (const Values& second : b) {
      out.push_back(first);
      out.back().insert(out.back().end(), second.begin(), second.end());
    }
  }
  return out;
}

std::vector<Values> grid_points(const std::vector<Axis>& grid) {
  std::vector<Values> out = {{}};
  for (const Axis& axis : grid) {
    std::vector<Values> along;
    for (const FieldValue& value : axis.values) along.push_back({{axis.key, value}});
    out = product(out, along);
  }
  return out;
}

std::vector<Values> zip_rows(const std::vector<Axis>& zip) {
  if (zip.empty()) return {{}};
  std::vector<Values> out(zip.front().values.size());
  for (const Axis& axis : zip)
    for (std::size_t row = 0; row < out.size(); ++row) out[row].push_back({axis.key, axis.values.at(row)});
  return out;
}

std::vector<Values> draws(const SweepSpec& spec) {
  if (spec.random.empty()) return {{}};
  std::vector<Values> out(static_cast<std::size_t>(spec.num_trials));
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (const Draw& draw : spec.random)
      out[i].push_back({draw.key, draw_value(draw, unit_draw(spec.seed, draw.key, static_cast<std::int64_t>(i)))});
  }
  return out;
}

// Checks before the trials are made: the product of a grid's lists may not fit into memory.
void check_num_trials(const SweepSpec& spec) {
  double trials = spec.random.empty() ? 1 : static_cast<double>(spec.num_trials);
  if (!spec.list.empty()) trials *= static_cast<double>(spec.list.size());
  if (!spec.zip.empty()) trials *= static_cast<double>(spec.zip.front().values.size());
  for (const Axis& axis : spec.grid) trials *= static_cast<double>(axis.values.size());
  if (trials <= static_cast<double>(kMostTrials)) return;
  char text[32];
  std::snprintf(text, sizeof(text), "%.15g", trials);
  throw ConfigError("error: sweep " + spec.name + " has " + text +
                    " trials (draws * entries of the list * rows of the zip * points of the grid); at most " +
                    std::to_string(kMostTrials) +
                    " are taken: shorten its lists, or draw some points with [sweep.random]");
}

std::string last_part(const std::string& key, std::size_t parts) {
  std::size_t begin = key.size();
  for (std::size_t i = 0; i < parts && begin != std::string::npos && begin != 0; ++i) begin = key.rfind('.', begin - 1);
  return begin == std::string::npos ? key : key.substr(begin + 1);
}

// Shortens long keys, as of [parallelism], to their significant word: "shard", "tensor".
std::string without_filler(std::string label) {
  for (const std::string filler : {"data_parallel_", "_parallel", "_degree", "_size"})
    if (const auto at = label.find(filler); at != std::string::npos) label.erase(at, filler.size());
  return label;
}

std::string numbered_name(std::size_t index) {
  char text[32];
  std::snprintf(text, sizeof(text), "trial-%03zu", index);
  return text;
}

// Returns a folder name: short, without characters that a shell or a file system does not accept.
std::string folder_name(std::size_t index, const Values& values, const std::vector<std::string>& keys,
                        const std::vector<std::string>& shortened) {
  constexpr std::size_t kMaxLength = 60;
  std::string name = numbered_name(index);
  for (const auto& [key, value] : values) {
    const auto& label = shortened[static_cast<std::size_t>(std::ranges::find(keys, key) - keys.begin())];
    std::string part = "-" + label + short_text(value);
    for (char& c : part)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_') c = '_';
    if (name.size() + part.size() > kMaxLength) break;
    name += part;
  }
  return name;
}

// Collects messages of several trials, each with the trials that it concerns.
class Faults {
 public:
  void add(const std::string& message, std::size_t trial, const std::string& values) {
    auto& entry = entries_[message];
    if (entry.trials.empty()) order_.push_back(message), entry.first = values;
    entry.trials.push_back(std::to_string(trial));
  }

  void throw_if_any(std::size_t num_trials) const {
    if (order_.empty()) return;
    std::vector<std::string> out;
    for (const auto& message : order_) {
      const auto& [first, trials] = entries_.at(message);
      const std::string who = trials.size() == num_trials ? "every trial"
                              : trials.size() == 1        ? "trial " + trials.front() + " (" + first + ")"
                                                   : "trials " + join(trials, ", ") + " (the first: " + first + ")";
      out.push_back("in " + who + ":\n" + message);
    }
    throw ConfigError(join(out, "\n"));
  }

 private:
  struct Entry {
    std::string first;
    std::vector<std::string> trials;
  };
  std::map<std::string, Entry> entries_;
  std::vector<std::string> order_;
};

std::string describe(const Values& values) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : values) parts.push_back(key + " = " + to_toml_value(value));
  return join(parts, ", ");
}

// Applies the sweep's own changes to a job: its folder, and for successive halving that it can be stopped and resumed.
void adapt(config::JobConfig& config, const SweepSpec& spec, const std::string& name) {
  config.job.config_file.reset();
  config.job.dump_folder = (spec.folder / name).string();
  config.validation.at_last_step |= is_of_validation(spec.objective);
  config.evaluation.at_last_step |= is_of_evaluation(spec.objective);
  if (!spec.asha) return;
  config.training.steps = spec.asha->max_steps.value_or(config.training.steps);
  if (!config.lr_scheduler.total_steps) config.lr_scheduler.total_steps = config.training.steps;
  config.checkpoint.last_save_model_only = false;
}

// A trial's values are loaded like a command line's; messages must not mention a command line.
constexpr const char* kFlag = "sweep.";

std::string without_flags(std::string message, const Values& values) {
  for (const auto& [key, value] : values) {
    const std::string place = std::string("command line: error: ") + kFlag + key + ": ";
    for (auto at = message.find(place); at != std::string::npos; at = message.find(place))
      message.replace(at, place.size(), "error: ");
  }
  return message;
}

std::int64_t largest_divisor(std::int64_t number, std::int64_t most) {
  constexpr std::int64_t kRarest = 1'000'000;  // limits the time of the search
  for (std::int64_t divisor = std::min({number, most, kRarest}); divisor > 1; --divisor)
    if (number % divisor == 0) return divisor;
  return 1;
}

// A rung is judged by the row of its last step; an earlier row describes a model that was trained less.
void check_rungs_are_logged(const config::JobConfig& config, const SweepSpec& spec) {
  const std::int64_t freq = config.metrics.log_freq;
  std::int64_t common = 0;
  std::optional<std::int64_t> unlogged;
  for (const std::int64_t rung : rung_steps(*spec.asha, config.training.steps)) {
    common = std::gcd(common, rung);
    if (!unlogged && rung != 1 && rung % freq != 0) unlogged = rung;
  }
  if (!unlogged) return;
  throw ConfigError("error: [sweep.asha] judges trials after step " + std::to_string(*unlogged) +
                    ", which has no row in metrics.jsonl: metrics.log_freq = " + std::to_string(freq) +
                    ". Set metrics.log_freq = " + std::to_string(largest_divisor(common, freq)) +
                    ", or rungs that are multiples of it (sweep.asha.min_steps, sweep.asha.max_steps)");
}

// Checks that the objective "evaluation.NAME/SCORE" is one of a task of the job.
void check_task(const config::JobConfig& config, const SweepSpec& spec) {
  const std::string& field = spec.objective.field;
  const std::size_t begin = std::string_view("evaluation.").size(), slash = field.rfind('/');
  const std::string name = field.substr(begin, slash - begin), score = field.substr(slash + 1);
  const auto fail = [&](const std::string& why) {
    throw ConfigError("error: sweep.objective = \"" + field + "\" " + why);
  };
  if (config.evaluation.tasks.empty()) fail("needs evaluation.tasks, and the job has none");
  std::vector<std::string> names;
  const config::Evaluation& e = config.evaluation;
  for (const config::TaskEntry& task : config::parse_task_entries(e.tasks, e.num_fewshot)) {
    names.push_back(task.name);
    if (task.name != name) continue;
    const bool is_text = task.kind == "text" || task.kind == "jsonl", is_share = score.starts_with("acc");
    if (is_text == is_share)
      fail("is not a score of kind " + task.kind + ", which has " +
           (is_text ? "word_perplexity, byte_perplexity and bits_per_byte" : "acc and acc_norm"));
    return;
  }
  fail("names a task that evaluation.tasks does not have; it has " + join(names, ", "));
}

void check(const config::JobConfig& config, const SweepSpec& spec) {
  if (spec.asha && !config.checkpoint.enable)
    throw ConfigError("error: [sweep.asha] stops trials and resumes them, which needs checkpoint.enable = true");
  if (spec.asha && spec.asha->min_steps >= config.training.steps)
    throw ConfigError("error: sweep.asha.min_steps (" + std::to_string(spec.asha->min_steps) +
                      ") must be below the steps of the whole training, " + std::to_string(config.training.steps));
  if (is_of_validation(spec.objective) && !config.validation.enable)
    throw ConfigError("error: sweep.objective = \"" + spec.objective.field + "\" needs validation.enable = true");
  config::validate(config, spec.nproc);
  if (is_of_evaluation(spec.objective)) check_task(config, spec);
  if (spec.asha && !is_of_pass(spec.objective)) check_rungs_are_logged(config, spec);
}

// Returns the settings that the scores on tasks depend on beside the model, by key.
std::map<std::string, std::string> tasks_of(const config::JobConfig& config) {
  const config::Evaluation& e = config.evaluation;
  return {{"evaluation.tasks", join(e.tasks, ", ")},
          {"evaluation.limit", e.limit ? std::to_string(*e.limit) : "None"},
          {"evaluation.num_fewshot", std::to_string(e.num_fewshot)},
          {"training.seq_len", std::to_string(config.training.seq_len)},
          {"model.hf_assets_path", config.model.hf_assets_path}};
}

// Returns the settings that a held-out loss depends on beside the model, by key.
std::map<std::string, std::string> held_out_set(const config::JobConfig& config, const SweepSpec& spec) {
  if (is_of_evaluation(spec.objective)) return tasks_of(config);
  const config::Validation& v = config.validation;
  std::map<std::string, std::string> out = {{"validation.dataset", v.dataset},
                                            {"validation.dataset_path", v.dataset_path.value_or("None")},
                                            {"validation.seq_len", std::to_string(v.seq_len)},
                                            {"validation.steps", std::to_string(v.steps)},
                                            {"model.hf_assets_path", config.model.hf_assets_path}};
  if (v.steps == -1) return out;
  // With a fixed number of batches, their rows and the number of ranks decide which tokens are used.
  out["validation.local_batch_size"] = std::to_string(v.local_batch_size);
  out["the ranks that share the data"] =
      std::to_string(config::num_data_parallel_ranks(config.parallelism, spec.nproc));
  return out;
}

void check_same_held_out_set(const Plan& plan, const SweepSpec& spec) {
  const auto first = held_out_set(plan.trials.front().config, spec);
  for (const PlannedTrial& trial : plan.trials)
    for (const auto& [name, value] : held_out_set(trial.config, spec)) {
      const auto found = first.find(name);
      // The name is missing if the other trial uses the full set; then validation.steps differs and is reported.
      if (found == first.end() || found->second == value) continue;
      throw ConfigError("error: trials cannot be compared by " + spec.objective.field + ": " + name + " is " + value +
                        " in " + trial.name.substr(0, kNumberedName) + ", and " + found->second +
                        " in trial-000, so that they look at different tokens. Give all trials the same" +
                        (name.starts_with("the ranks") ? ", or set validation.steps = -1" : ""));
    }
}

// Refuses trials that would save into one folder: a trial resumes from what it finds there.
void check_checkpoint_folders(const std::vector<PlannedTrial>& trials) {
  std::map<std::string, std::string> owners;
  for (const PlannedTrial& trial : trials) {
    if (!config::saves_checkpoints(trial.config.checkpoint)) continue;
    const std::string folder = config::real_path(config::checkpoint_folder(trial.config)).string();
    const auto [owner, is_new] = owners.emplace(folder, trial.name);
    if (is_new) continue;
    throw ConfigError("error: checkpoint.folder = \"" + trial.config.checkpoint.folder + "\" is " + folder + " in " +
                      owner->second.substr(0, kNumberedName) + " and in " + trial.name.substr(0, kNumberedName) +
                      ", and a trial would resume from the other's checkpoints. Give a name without / and .., which " +
                      "is under each trial's own folder, or another folder to each trial");
  }
}

void add_warnings(const std::vector<std::string>& from, std::vector<std::string>& to) {
  for (const auto& warning : from)
    if (std::ranges::count(to, warning) == 0) to.push_back(warning);
}

}  // namespace

std::vector<Values> expand(const SweepSpec& spec) {
  check_num_trials(spec);
  const auto listed = spec.list.empty() ? std::vector<Values>{{}} : spec.list;
  return product(product(product(draws(spec), listed), zip_rows(spec.zip)), grid_points(spec.grid));
}

std::vector<std::int64_t> rung_steps(const Asha& asha, std::int64_t max_steps) {
  std::vector<std::int64_t> rungs;
  for (std::int64_t steps = asha.min_steps; steps < max_steps; steps *= asha.reduction_factor) {
    rungs.push_back(steps);
    if (steps > max_steps / asha.reduction_factor) break;  // the product may not fit into 64 bits
  }
  rungs.push_back(max_steps);
  return rungs;
}

std::string renumbered(const std::string& name, std::size_t index) {
  const auto end = name.find('-', std::string_view("trial-").size());
  return numbered_name(index) + (end == std::string::npos ? "" : name.substr(end));
}

std::string short_text(const FieldValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<double>(&value)) {
    char out[32];
    std::snprintf(out, sizeof(out), "%.4g", *number);
    return out;
  }
  return to_toml_value(value);
}

std::vector<std::string> short_keys(const std::vector<std::string>& keys) {
  std::vector<std::string> out;
  for (const auto& key : keys) {
    std::size_t parts = 1;
    const auto clashes = [&](const std::string& other) {
      return other != key && last_part(other, parts) == last_part(key, parts);
    };
    while (last_part(key, parts) != key && std::ranges::any_of(keys, clashes)) ++parts;
    out.push_back(last_part(key, parts));
  }
  const auto before = out;
  for (auto& label : out) {
    const std::string less = without_filler(label);
    const auto clashes = [&](const std::string& other) { return other != label && without_filler(other) == less; };
    if (std::ranges::none_of(before, clashes)) label = less;
  }
  return out;
}

Plan make_plan(const SweepSpec& spec) {
  const auto all_values = expand(spec);
  const auto keys = swept_keys(spec);
  const auto shortened = short_keys(keys);
  Plan plan;
  Faults faults;
  for (std::size_t i = 0; i < all_values.size(); ++i) {
    PlannedTrial trial{.name = folder_name(i, all_values[i], keys, shortened), .values = all_values[i], .config = {}};
    config::CommandLine command_line;
    command_line.config_file = spec.base.string();
    for (const auto& [key, value] : trial.values) command_line.overrides.push_back({key, value, kFlag + key});
    try {
      auto loaded = config::load_job_config(command_line, spec.nproc);
      trial.config = std::move(loaded.config);
      add_warnings(loaded.warnings, plan.warnings);
      adapt(trial.config, spec, trial.name);
      check(trial.config, spec);
    } catch (const ConfigError& error) {
      faults.add(without_flags(error.what(), trial.values), i, describe(trial.values));
    }
    plan.trials.push_back(std::move(trial));
  }
  faults.throw_if_any(plan.trials.size());
  check_checkpoint_folders(plan.trials);
  if (is_of_pass(spec.objective)) {
    plan.held_out = held_out_set(plan.trials.front().config, spec);
    check_same_held_out_set(plan, spec);
  }
  if (spec.asha) plan.rungs = rung_steps(*spec.asha, plan.trials.front().config.training.steps);
  return plan;
}

}  // namespace titan::sweep
