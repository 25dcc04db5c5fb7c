#include "lab/sweep/results/store.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/fs.h"
#include "base/limits/parse_json.h"
#include "base/text.h"
#include "lab/sweep/results/json.h"

namespace titan::sweep {
namespace {

using config::FieldValue;

constexpr int kVersion = 1;
constexpr const char* kFile = "sweep.json";
constexpr const char* kStepsKey = "training.steps";

OrderedJson to_json(const FieldValue& value) {
  return std::visit(
      [](const auto& v) -> OrderedJson {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, config::None>) {
          return nullptr;
        } else {
          return v;
        }
      },
      value);
}

FieldValue to_value(const OrderedJson& json) {
  if (json.is_null()) return config::None{};
  if (json.is_boolean()) return json.get<bool>();
  if (const auto integer = integer_of(json)) return *integer;
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (!json.empty() && json.front().is_array()) return json.get<config::StringLists>();
  return json.get<config::StringList>();
}

double to_number(const OrderedJson& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

OrderedJson to_json(const Trial& trial) {
  OrderedJson values = OrderedJson::object(), rungs = OrderedJson::array();
  for (const auto& [key, value] : trial.values) values[key] = to_json(value);
  for (const double objective : trial.rung_objectives) rungs.push_back(number_or_null(objective));
  return {{"name", trial.name},
          {"state", to_string(trial.state)},
          {"values", values},
          {"starts", trial.starts},
          {"failures", trial.failures},
          {"steps", trial.steps},
          {"seconds", trial.seconds},
          {"objective", number_or_null(trial.objective)},
          {"objective_step", trial.objective_step},
          {"rung_objectives", rungs},
          {"error", trial.error}};
}

State to_state(const std::string& name) {
  for (const State state : {State::kPending, State::kRunning, State::kPaused, State::kDone, State::kFailed})
    if (name == to_string(state)) return state;
  throw DataError("no trial is ever \"" + name + "\"");
}

Trial to_trial(const OrderedJson& json) {
  Trial trial;
  trial.name = json.at("name");
  trial.state = to_state(json.at("state"));
  for (const auto& [key, value] : json.at("values").items()) trial.values.push_back({key, to_value(value)});
  trial.starts = json.at("starts");
  trial.failures = json.at("failures");
  trial.steps = json.at("steps");
  trial.seconds = json.at("seconds");
  trial.objective = to_number(json.at("objective"));
  trial.objective_step = json.value("objective_step", std::int64_t{0});  // missing in records of earlier versions
  for (const auto& objective : json.at("rung_objectives")) trial.rung_objectives.push_back(to_number(objective));
  trial.error = json.at("error");
  return trial;
}

OrderedJson to_json(const Objective& o) {
  return {{"field", o.field}, {"reduction", o.reduction}, {"window", o.window}, {"maximize", o.maximize}};
}

Record to_record(const OrderedJson& json) {
  if (json.at("version") != kVersion)
    throw DataError("it is of version " + json.at("version").dump() + ", this program knows version " +
                    std::to_string(kVersion));
  Record record;
  record.name = json.at("name");
  const auto& objective = json.at("objective");
  record.objective = {objective.at("field"), objective.at("reduction"), objective.at("window"),
                      objective.at("maximize")};
  record.keys = json.at("keys").get<std::vector<std::string>>();
  record.rungs = json.at("rungs").get<std::vector<std::int64_t>>();
  record.reduction_factor = json.at("reduction_factor");
  record.config = json.at("config").get<config::FlatConfig>();
  record.held_out = json.value("held_out", record.held_out);  // missing in records of earlier versions
  record.started = json.at("started");
  for (const auto& trial : json.at("trials")) record.trials.push_back(to_trial(trial));
  return record;
}

std::string describe(const Record& record) {
  const Objective& o = record.objective;
  std::string text = std::string(o.maximize ? "the highest " : "the lowest ") + o.reduction + " " + o.field;
  if (o.reduction == "mean") text += " of " + counted(o.window, "row");
  return text;
}

// Compares without order: reordering the tables of the file must not make a difference.
bool same_values(std::vector<Assignment> a, std::vector<Assignment> b) {
  std::ranges::sort(a, {}, &Assignment::key);
  std::ranges::sort(b, {}, &Assignment::key);
  const auto equal = [](const Assignment& x, const Assignment& y) {
    return x.key == y.key && to_toml_value(x.value) == to_toml_value(y.value);
  };
  return std::ranges::equal(a, b, equal);
}

std::string text_of(const std::vector<Assignment>& values) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : values) parts.push_back(key + " = " + to_toml_value(value));
  return join(parts, ", ");
}

// Returns the trial of `fresh` with the values of each saved one; nullopt for one that is gone.
std::vector<std::optional<std::size_t>> places_of(const Record& saved, const Record& fresh) {
  std::vector<std::optional<std::size_t>> places;
  std::vector<bool> is_taken(fresh.trials.size());
  for (const Trial& trial : saved.trials) {
    places.emplace_back();
    for (std::size_t i = 0; i < fresh.trials.size() && !places.back(); ++i) {
      if (is_taken[i] || !same_values(trial.values, fresh.trials[i].values)) continue;
      is_taken[i] = true;
      places.back() = i;
    }
  }
  return places;
}

std::string rungs_text(const Record& record) {
  std::vector<std::string> steps;
  for (const auto rung : record.rungs) steps.push_back(std::to_string(rung));
  return (steps.empty() ? "none" : join(steps, ", ")) +
         (steps.empty() ? "" : " by " + std::to_string(record.reduction_factor));
}

// True if every trial of `saved` is at a rung of `fresh`: rungs may be added behind the last one.
bool rungs_go_on(const Record& saved, const Record& fresh) {
  return saved.reduction_factor == fresh.reduction_factor && saved.rungs.size() <= fresh.rungs.size() &&
         std::ranges::equal(saved.rungs, std::span(fresh.rungs).first(saved.rungs.size())) &&
         saved.rungs.empty() == fresh.rungs.empty();
}

std::int64_t steps_of(const Record& record) {
  const auto found = record.config.find(kStepsKey);
  return found == record.config.end() ? 0 : std::stoll(found->second);
}

// Returns why finished trials of `saved` cannot be trained to more steps with the same result as an
// uninterrupted trial; empty if they can.
std::string why_no_more_steps(const Record& saved, const Plan& plan) {
  const config::JobConfig& job = plan.trials.front().config;
  const std::string begin = "training.steps of the job was " + std::to_string(steps_of(saved)) + ", is " +
                            std::to_string(job.training.steps) + ": ";
  if (job.training.steps < steps_of(saved)) return begin + "it may be raised, and not lowered";
  if (!job.lr_scheduler.total_steps)
    return begin + "without lr_scheduler.total_steps more steps mean other learning rates from the first one on";
  if (!job.checkpoint.enable) return begin + "without checkpoints (checkpoint.enable) no trial can be trained on";
  if (job.checkpoint.last_save_model_only)
    return begin +
           "the last checkpoints hold weights alone (checkpoint.last_save_model_only), and cannot be trained on";
  return "";
}

std::vector<std::string> differences(const Record& saved, const Record& fresh, const Plan& plan,
                                     const std::vector<std::optional<std::size_t>>& places) {
  std::vector<std::string> out;
  if (describe(saved) != describe(fresh))
    out.push_back("it looked for " + describe(saved) + ", and now for " + describe(fresh));
  if (!rungs_go_on(saved, fresh))
    out.push_back("its rungs were " + rungs_text(saved) + " and are " + rungs_text(fresh) +
                  ", because sweep.asha or training.steps changed; rungs may be added behind the last one");
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i]) continue;
    out.push_back("trial " + std::to_string(i) + " was " + text_of(saved.trials[i].values) +
                  ", which no trial is any more");
    break;
  }
  for (const auto& change : config::find_changes(saved.config, plan.trials.front().config)) {
    if (std::ranges::count(fresh.keys, change.key) > 0) continue;
    if (change.key == kStepsKey) {
      if (auto why = why_no_more_steps(saved, plan); !why.empty()) out.push_back(std::move(why));
    } else {
      out.push_back(change.key + " of the job was " + change.saved + ", is " + change.now);
    }
  }
  for (const auto& [name, before] : saved.held_out) {
    const auto now = fresh.held_out.find(name);
    if (now != fresh.held_out.end() && now->second != before)
      out.push_back(name + " of the job was " + before + ", is " + now->second);
  }
  return out;
}

}  // namespace

Record new_record(const SweepSpec& spec, const Plan& plan, double unix_time) {
  Record record;
  record.name = spec.name;
  record.objective = spec.objective;
  record.keys = swept_keys(spec);
  record.rungs = plan.rungs;
  if (spec.asha) record.reduction_factor = spec.asha->reduction_factor;
  record.config = config::flatten(plan.trials.front().config);
  record.held_out = plan.held_out;
  record.started = unix_time;
  for (const auto& planned : plan.trials) {
    record.trials.emplace_back();
    record.trials.back().name = planned.name;
    record.trials.back().values = planned.values;
  }
  return record;
}

void save_record(const std::filesystem::path& folder, const Record& record) {
  OrderedJson trials = OrderedJson::array();
  for (const auto& trial : record.trials) trials.push_back(to_json(trial));
  const OrderedJson json = {
      {"version", kVersion},        {"name", record.name},   {"objective", to_json(record.objective)},
      {"keys", record.keys},        {"rungs", record.rungs}, {"reduction_factor", record.reduction_factor},
      {"started", record.started},  {"trials", trials},      {"config", record.config},
      {"held_out", record.held_out}};
  // A trial's error may quote bytes that are not UTF-8.
  write_file_atomically(folder / kFile, json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

std::optional<Record> load_record(const std::filesystem::path& folder) {
  const auto path = folder / kFile;
  if (!std::filesystem::exists(path)) return std::nullopt;
  try {
    return to_record(parse_json<OrderedJson>(read_file(path)));
  } catch (const OrderedJson::exception& error) {
    throw DataError("error: " + path.string() + " is damaged: " + error.what());
  } catch (const DataError& error) {
    throw DataError("error: " + path.string() + ": " + error.what());
  }
}

// Reopens finished trials if training.steps was raised: they continue to a further rung, or to the new end.
void reopen_done(const Record& saved, const Plan& plan, std::vector<Trial>& trials) {
  if (std::ranges::count(saved.keys, kStepsKey) > 0) return;  // each trial has its own steps
  const std::int64_t steps = plan.trials.front().config.training.steps;
  if (plan.rungs.empty() ? steps_of(saved) >= steps : saved.rungs.size() >= plan.rungs.size()) return;
  for (Trial& trial : trials) {
    if (trial.state != State::kDone || std::isnan(trial.objective)) continue;  // NaN: diverged
    trial.state = plan.rungs.empty() ? State::kPending : State::kPaused;
    if (plan.rungs.empty()) trial.rung_objectives.clear();
  }
}

void take_on(const Record& saved, Record& fresh, Plan& plan, const std::filesystem::path& folder) {
  const auto places = places_of(saved, fresh);
  const auto found = differences(saved, fresh, plan, places);
  if (!found.empty())
    throw ConfigError(
        "error: " + folder.string() + " holds another sweep:\n  " + join(found, "\n  ") +
        "\nSet these back, or give sweep.folder another folder. (Values may be added anywhere: the trials "
        "that there were are kept, and new ones are run.)");
  fresh.started = saved.started;
  auto trials = saved.trials;
  reopen_done(saved, plan, trials);
  std::vector<PlannedTrial> planned;
  std::vector<bool> is_placed(fresh.trials.size());
  for (const auto& place : places) {
    planned.push_back(std::move(plan.trials[*place]));
    planned.back().name = saved.trials[planned.size() - 1].name;
    is_placed[*place] = true;
  }
  for (std::size_t i = 0; i < is_placed.size(); ++i) {
    if (is_placed[i]) continue;
    planned.push_back(std::move(plan.trials[i]));
    planned.back().name = renumbered(planned.back().name, planned.size() - 1);
    trials.push_back(fresh.trials[i]);
    trials.back().name = planned.back().name;
  }
  for (PlannedTrial& trial : planned) trial.config.job.dump_folder = (folder / trial.name).string();
  plan.trials = std::move(planned);
  fresh.trials = std::move(trials);
}

SweepLock::SweepLock(const std::filesystem::path& folder)
    : FileLock(folder / ".lock", "error: another titan-train sweep runs in " + folder.string() +
                                     "; wait for it, or give this one another sweep.folder") {}

}  // namespace titan::sweep
