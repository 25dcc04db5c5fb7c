#include "apps/commands/inspect_command.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "apps/common/print_result.h"
#include "apps/flags/inspect_flags.h"
#include "apps/saved/run_state.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/step_folders.h"
#include "checkpoint/io/read_error.h"
#include "checkpoint/tools/inspect.h"
#include "checkpoint/tools/inspect_print.h"
#include "checkpoint/tools/verify.h"
#include "config/load.h"
#include "models/registry.h"

namespace titan {
namespace {

namespace fs = std::filesystem;
using checkpoint::Fault;
using checkpoint::StepInfo;

checkpoint::PrintOptions print_options(const InspectFlags& flags) { return {flags.pattern, flags.all}; }

std::string verdict_text(const std::string& what, const std::vector<Fault>& faults) {
  if (faults.empty()) return "\nverified: everything that " + what + " holds is as it was written\n";
  return "\nDAMAGED: " + counted(std::ssize(faults), "fault") + "\n" + checkpoint::faults_text(faults);
}

// Verifies the complete steps. Files left by a killed save are not damage.
std::vector<Fault> verify_steps(const fs::path& folder, std::vector<StepInfo>& steps) {
  std::vector<Fault> all;
  for (StepInfo& step : steps) {
    if (step.state == StepInfo::State::kIncomplete) continue;
    if (step.state == StepInfo::State::kUnreadable) {
      all.push_back({"", step.name + ": " + step.detail});
      continue;
    }
    const auto faults = checkpoint::verify_checkpoint(folder / step.name);
    if (faults.empty()) continue;
    step.state = StepInfo::State::kDamaged;
    step.detail = counted(std::ssize(faults), "fault");
    for (const Fault& fault : faults)
      all.push_back({fault.file.empty() ? "" : step.name + "/" + fault.file, step.name + ": " + fault.text});
  }
  return all;
}

int exit_code(const std::vector<StepInfo>& steps) {
  const auto is_bad = [](const StepInfo& step) {
    return step.state == StepInfo::State::kDamaged || step.state == StepInfo::State::kUnreadable;
  };
  return std::ranges::any_of(steps, is_bad) ? kExitFailed : kExitDone;
}

int inspect_steps(const InspectFlags& flags, std::vector<StepInfo> steps) {
  std::vector<Fault> faults;
  if (flags.verify) faults = verify_steps(flags.path, steps);
  if (flags.json) {
    print_result(checkpoint::steps_json(flags.path, steps, flags.verify ? &faults : nullptr));
  } else {
    const auto rows = rows_of_run(fs::weakly_canonical(flags.path).parent_path());
    print_result(checkpoint::steps_text(flags.path, steps, rows) +
                 (flags.verify ? verdict_text(flags.path, faults) : ""));
  }
  return exit_code(steps);
}

int inspect_run(const InspectFlags& flags, checkpoint::RunInfo run) {
  std::vector<Fault> faults;
  if (flags.verify) faults = verify_steps(run.checkpoints, run.steps);
  if (flags.json) {
    print_result(checkpoint::run_json(run, flags.verify ? &faults : nullptr));
  } else {
    print_result(checkpoint::run_text(run) + (flags.verify ? verdict_text(run.checkpoints.string(), faults) : ""));
  }
  return exit_code(run.steps);
}

// Returns the configuration of the run that saved the checkpoint; nullopt if its file is missing or cannot be read.
std::optional<config::JobConfig> recorded_config(const fs::path& checkpoint) {
  const fs::path file = checkpoint / layout::kSavedConfigFile;
  try {
    if (!fs::is_regular_file(file)) return std::nullopt;
    return config::load_job_config_text(read_file(file), file.string()).config;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

checkpoint::Surroundings surroundings(const checkpoint::Inspection& inspection) {
  checkpoint::Surroundings around;
  if (const auto config = recorded_config(inspection.path)) {
    around.model = config->model.name + " " + config->model.flavor;
    around.mesh = mesh_text(config->parallelism, inspection.ranks);
    const ModelNaming naming = models::make_train_spec(config->model, config->training.seq_len).naming;
    if (naming.is_tied) around.tied_name = naming.output;
  }
  const fs::path folder = fs::weakly_canonical(inspection.path);
  const auto step = layout::step_of(folder.filename().string());
  if (step) around.loss = checkpoint::loss_text(rows_of_run(folder.parent_path().parent_path()), *step);
  return around;
}

int inspect_one(const InspectFlags& flags) {
  std::vector<Fault> faults;
  if (flags.verify) faults = checkpoint::verify_checkpoint(flags.path);
  std::optional<checkpoint::Inspection> inspection;
  try {
    inspection = checkpoint::inspect_checkpoint(flags.path);
  } catch (const CheckpointError&) {
    // The checkpoint is too damaged to be listed: the faults say why.
    if (faults.empty() || flags.json) throw;
    print_result(flags.path + "\n" + verdict_text(flags.path, faults));
    return kExitFailed;
  }
  if (flags.json) {
    print_result(
        checkpoint::inspection_json(*inspection, print_options(flags).pattern, flags.verify ? &faults : nullptr));
  } else {
    print_result(checkpoint::inspection_text(*inspection, print_options(flags), surroundings(*inspection)) +
                 (flags.verify ? verdict_text(flags.path, faults) : ""));
  }
  return faults.empty() ? kExitDone : kExitFailed;
}

// True if the path is a checkpoint: a folder with .metadata or weights, or a file with weights.
bool is_checkpoint(const fs::path& path) {
  try {
    checkpoint::detect_kind(path);
    return true;
  } catch (const checkpoint::ReadError&) {
    throw;
  } catch (const CheckpointError&) {
    return false;
  }
}

}  // namespace

int run_inspect(const std::vector<std::string>& args) {
  InspectFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  log_to_stderr("titan-train inspect");
  if (is_checkpoint(flags.path)) return inspect_one(flags);
  if (fs::exists(fs::path(flags.path) / "sweep.json"))
    throw ConfigError("titan-train inspect: error: " + flags.path +
                      " is the folder of a sweep: titan-train sweep --report " + flags.path +
                      " prints its ranking, and titan-train inspect looks into one of its trials, " + flags.path +
                      "/trial-...");
  auto steps = checkpoint::inspect_run(flags.path);
  if (!steps.empty()) return inspect_steps(flags, std::move(steps));
  if (auto run = find_run(flags.path)) return inspect_run(flags, std::move(*run));
  return inspect_one(flags);  // throws: says what is missing
}

}  // namespace titan
