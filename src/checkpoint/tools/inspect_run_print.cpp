#include <spdlog/fmt/fmt.h>

#include <cmath>

#include "base/text.h"
#include "base/text_table.h"
#include "base/utf8.h"
#include "checkpoint/tools/inspect_json.h"
#include "checkpoint/tools/inspect_print.h"

namespace titan::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

const char* state_text(StepInfo::State state) {
  switch (state) {
    case StepInfo::State::kComplete:
      return "complete";
    case StepInfo::State::kIncomplete:
      return "incomplete";
    case StepInfo::State::kUnreadable:
      return "unreadable";
    case StepInfo::State::kDamaged:
      return "damaged";
  }
  return "";
}

const char* state_text(RunInfo::State state) {
  switch (state) {
    case RunInfo::State::kNotBegun:
      return "not begun";
    case RunInfo::State::kRunning:
      return "running";
    case RunInfo::State::kStopped:
      return "stopped";
    case RunInfo::State::kFinished:
      return "finished";
  }
  return "";
}

std::string steps_table(const std::vector<StepInfo>& steps, const std::vector<LoggedStep>& rows) {
  const StepInfo* newest = newest_complete(steps);
  std::vector<std::vector<std::string>> cells = {{"", "state", "holds", "saved", "loss", "ranks", "size"}};
  for (const StepInfo& step : steps)
    cells.push_back({step.name, state_text(step.state), step.holds, step.saved_at ? date_text(*step.saved_at) : "",
                     loss_text(rows, step.step), step.ranks ? std::to_string(*step.ranks) : "",
                     format_bytes(static_cast<double>(step.bytes)), &step == newest ? "the newest" : step.detail});
  return text_table(cells, {false, false, false, false, false, true, true, false});
}

Json steps_value(const std::filesystem::path& folder, const std::vector<StepInfo>& steps) {
  const StepInfo* newest = newest_complete(steps);
  Json json = {{"path", escape_invalid_utf8(folder.string())}, {"newest", newest ? Json(newest->step) : Json()}};
  Json& list = json["steps"] = Json::array();
  for (const StepInfo& step : steps)
    list.push_back({{"name", step.name},
                    {"step", step.step},
                    {"state", state_text(step.state)},
                    {"holds", step.holds},
                    {"bytes", step.bytes},
                    {"detail", step.detail},
                    {"saved_at", or_null(step.saved_at)},
                    {"ranks", or_null(step.ranks)}});
  return json;
}

}  // namespace

std::string steps_text(const std::filesystem::path& folder, const std::vector<StepInfo>& steps,
                       const std::vector<LoggedStep>& rows) {
  return folder.string() + "\n" + steps_table(steps, rows);
}

std::string run_text(const RunInfo& run) {
  const StepInfo* newest = newest_complete(run.steps);
  std::vector<std::vector<std::string>> rows = {{"state", state_text(run.state)}};
  rows.push_back(
      {"step", std::to_string(run.step) + (run.total_steps > 0 ? " of " + std::to_string(run.total_steps) : "")});
  if (!run.rows.empty()) {
    const LoggedStep& last = run.rows.back();
    rows.push_back({"loss", loss_text(run.rows, run.step)});
    rows.push_back({"tokens seen", with_thousands(last.tokens_seen)});
    rows.push_back({"last logged", date_text(std::llround(last.unix_time))});
  }
  if (newest && newest->ranks) rows.push_back({"ranks", std::to_string(*newest->ranks) + in_brackets(run.mesh)});
  if (!run.model.empty()) rows.push_back({"model", run.model});
  rows.push_back({"checkpoints", (run.steps.empty() ? "none in " : "") + run.checkpoints.string()});
  rows.push_back({"to go on", run.next});
  return run.path.string() + "\n" + text_table(rows, {false, false}) +
         (run.steps.empty() ? "" : "\n" + steps_table(run.steps, run.rows));
}

std::string steps_json(const std::filesystem::path& folder, const std::vector<StepInfo>& steps,
                       const std::vector<Fault>* faults) {
  Json json = steps_value(folder, steps);
  if (faults != nullptr) add_verdict(json, *faults);
  return json.dump(2) + "\n";
}

std::string run_json(const RunInfo& run, const std::vector<Fault>* faults) {
  Json json = steps_value(run.checkpoints, run.steps);
  Json state = {{"path", escape_invalid_utf8(run.path.string())},
                {"state", state_text(run.state)},
                {"step", run.step},
                {"total_steps", run.total_steps},
                {"model", run.model},
                {"mesh", run.mesh},
                {"next", escape_invalid_utf8(run.next)}};
  if (!run.rows.empty()) {
    state["loss"] = or_null(run.rows.back().loss);
    state["tokens_seen"] = run.rows.back().tokens_seen;
    state["last_logged_at"] = run.rows.back().unix_time;
  }
  json["run"] = std::move(state);
  if (faults != nullptr) add_verdict(json, *faults);
  return json.dump(2) + "\n";
}

}  // namespace titan::checkpoint
