#include "apps/commands/inspect_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iterator>

#include "apps/common/parse_command.h"
#include "apps/saved/run_state.h"
#include "apps/common/print_result.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/step_folders.h"
#include "checkpoint/tools/inspect.h"
#include "checkpoint/tools/inspect_print.h"
#include "checkpoint/tools/verify.h"
#include "config/load.h"

namespace titan {
namespace {

namespace fs = std::filesystem;
using checkpoint::Fault;
using checkpoint::StepInfo;

constexpr const char* kInspectHelp =
    R"(What a run or a checkpoint holds. PATH is
  a run's dump folder     outputs: how far the run has come, its checkpoints, the command that goes on with it
  a run's checkpoints     outputs/checkpoint: lists its steps, whole or not, and the newest
  a step of a run         outputs/checkpoint/step-1000, ours, TorchTitan's or any DCP folder
  Hugging Face weights    a folder with *.safetensors, or one such file
  a file of torch.save    model.pt, a dict of name -> tensor
Reads metadata alone, whatever the size, unless --verify asks for more.)";

constexpr const char* kExitCodes = "Exit codes: 0 done, 1 damaged or no checkpoint, 2 wrong command line.";

struct InspectArguments {
  std::string path;
  bool verify = false;
  bool json = false;
  checkpoint::PrintOptions print;
};

std::string verdict_text(const std::string& what, const std::vector<Fault>& faults) {
  if (faults.empty()) return "\nverified: everything that " + what + " holds is as it was written\n";
  return "\nDAMAGED: " + counted(std::ssize(faults), "fault") + "\n" + checkpoint::faults_text(faults);
}

// The steps that claim to be checkpoints; what a killed save left is not damage.
std::vector<Fault> verify_steps(const fs::path& folder, std::vector<StepInfo>& steps) {
  std::vector<Fault> all;
  for (StepInfo& step : steps) {
    if (step.state == StepInfo::State::kIncomplete) continue;
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
  const auto is_damaged = [](const StepInfo& step) { return step.state == StepInfo::State::kDamaged; };
  return std::ranges::any_of(steps, is_damaged) ? kExitFailed : kExitDone;
}

int inspect_steps(const InspectArguments& arguments, std::vector<StepInfo> steps) {
  std::vector<Fault> faults;
  if (arguments.verify) faults = verify_steps(arguments.path, steps);
  if (arguments.json) {
    print_result(checkpoint::steps_json(arguments.path, steps, arguments.verify ? &faults : nullptr));
  } else {
    const auto rows = rows_of_run(fs::weakly_canonical(arguments.path).parent_path());
    print_result(checkpoint::steps_text(arguments.path, steps, rows) +
                 (arguments.verify ? verdict_text(arguments.path, faults) : ""));
  }
  return exit_code(steps);
}

int inspect_run(const InspectArguments& arguments, checkpoint::RunInfo run) {
  std::vector<Fault> faults;
  if (arguments.verify) faults = verify_steps(run.checkpoints, run.steps);
  if (arguments.json) {
    print_result(checkpoint::run_json(run, arguments.verify ? &faults : nullptr));
  } else {
    print_result(checkpoint::run_text(run) + (arguments.verify ? verdict_text(run.checkpoints.string(), faults) : ""));
  }
  return exit_code(run.steps);
}

// Of the run that saved it; a file that cannot be read says nothing.
std::optional<config::JobConfig> recorded_config(const fs::path& checkpoint) {
  const fs::path file = checkpoint / checkpoint::kRunConfigFile;
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
  }
  const fs::path folder = fs::weakly_canonical(inspection.path);
  const auto step = layout::step_of(folder.filename().string());
  if (step) around.loss = checkpoint::loss_text(rows_of_run(folder.parent_path().parent_path()), *step);
  return around;
}

int inspect_one(const InspectArguments& arguments) {
  std::vector<Fault> faults;
  if (arguments.verify) faults = checkpoint::verify_checkpoint(arguments.path);
  std::optional<checkpoint::Inspection> inspection;
  try {
    inspection = checkpoint::inspect_checkpoint(arguments.path);
  } catch (const CheckpointError&) {
    // So damaged that it cannot be listed: the faults say why.
    if (faults.empty() || arguments.json) throw;
    print_result(arguments.path + "\n" + verdict_text(arguments.path, faults));
    return kExitFailed;
  }
  if (arguments.json) {
    print_result(
        checkpoint::inspection_json(*inspection, arguments.print.pattern, arguments.verify ? &faults : nullptr));
  } else {
    print_result(checkpoint::inspection_text(*inspection, arguments.print, surroundings(*inspection)) +
                 (arguments.verify ? verdict_text(arguments.path, faults) : ""));
  }
  return faults.empty() ? kExitDone : kExitFailed;
}

// A folder with .metadata or weights is a checkpoint, whatever else lies in it.
bool is_checkpoint(const fs::path& path) {
  try {
    checkpoint::detect_kind(path);
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

}  // namespace

int run_inspect(const std::vector<std::string>& args) {
  CLI::App app(kInspectHelp, "titan-train inspect");
  app.footer(kExitCodes);
  InspectArguments arguments;
  app.add_option("PATH", arguments.path, "what to look at")->required();
  app.add_flag(
      "--verify", arguments.verify,
      "read everything: files and records against their checksums, shapes, boxes that must make up each tensor");
  app.add_flag("--json", arguments.json, "one JSON object instead of text, with all keys and files");
  app.add_flag("--all", arguments.print.all, "list the keys of the optimizer and the run too, and the files");
  app.add_option("--keys", arguments.print.pattern,
                 "only keys whose names match PATTERN, one by one; * and ? as in the shell, else a part of the name")
      ->type_name("PATTERN");
  if (const auto code = parse_command(app, args)) return *code;
  log_to_stderr("titan-train inspect");
  if (is_checkpoint(arguments.path)) return inspect_one(arguments);
  if (fs::exists(fs::path(arguments.path) / "sweep.json"))
    throw ConfigError("titan-train inspect: error: " + arguments.path +
                      " is the folder of a sweep: titan-train sweep --report " + arguments.path +
                      " prints its ranking, and titan-train inspect looks into one of its trials, " + arguments.path +
                      "/trial-...");
  auto steps = checkpoint::inspect_run(arguments.path);
  if (!steps.empty()) return inspect_steps(arguments, std::move(steps));
  if (auto run = find_run(arguments.path)) return inspect_run(arguments, std::move(*run));
  return inspect_one(arguments);  // which says what is missing
}

}  // namespace titan
