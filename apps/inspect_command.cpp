#include "apps/inspect_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "apps/checkpoint_command.h"
#include "base/error.h"
#include "checkpoint/inspect.h"
#include "checkpoint/inspect_print.h"

namespace titan {
namespace {

namespace fs = std::filesystem;
using checkpoint::StepInfo;

constexpr const char* kInspectHelp =
    R"(What a checkpoint holds. PATH is
  a step of a run         outputs/checkpoint/step-1000, ours, TorchTitan's or any DCP folder
  a run's checkpoints     outputs/checkpoint: lists its steps, whole or not, and the newest
  Hugging Face weights    a folder with *.safetensors, or one such file
  a file of torch.save    model.pt, a dict of name -> tensor
Reads metadata alone, whatever the size, unless --verify asks for more.)";

constexpr const char* kExitCodes = "Exit codes: 0 done, 1 damaged or no checkpoint, 2 wrong command line.";

struct InspectArguments {
  std::string path;
  bool verify = false;
  bool json = false;
  std::string keys;
};

std::string verdict_text(const std::string& what, const std::vector<std::string>& faults) {
  if (faults.empty()) return "\nverified: everything that " + what + " holds is as it was written\n";
  std::string text = "\nDAMAGED: " + std::to_string(faults.size()) + (faults.size() == 1 ? " fault\n" : " faults\n");
  for (const std::string& fault : faults) text += "  " + fault + "\n";
  return text;
}

// The steps that claim to be checkpoints; what a killed save left is no damage.
std::vector<std::string> verify_run(const fs::path& folder, std::vector<StepInfo>& steps) {
  std::vector<std::string> all;
  for (StepInfo& step : steps) {
    if (step.state == StepInfo::State::kIncomplete) continue;
    const auto faults = checkpoint::verify_checkpoint(folder / step.name);
    if (faults.empty()) continue;
    step.state = StepInfo::State::kDamaged;
    step.detail = std::to_string(faults.size()) + " faults";
    for (const std::string& fault : faults) all.push_back(step.name + ": " + fault);
  }
  return all;
}

int inspect_run(const InspectArguments& arguments, std::vector<StepInfo> steps) {
  std::vector<std::string> faults;
  if (arguments.verify) faults = verify_run(arguments.path, steps);
  if (arguments.json) {
    print_result(checkpoint::run_json(arguments.path, steps, arguments.verify ? &faults : nullptr));
  } else {
    print_result(checkpoint::run_text(arguments.path, steps) +
                 (arguments.verify ? verdict_text(arguments.path, faults) : ""));
  }
  return faults.empty() ? kExitDone : kExitFailed;
}

int inspect_one(const InspectArguments& arguments) {
  std::vector<std::string> faults;
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
    print_result(checkpoint::inspection_json(*inspection, arguments.keys, arguments.verify ? &faults : nullptr));
  } else {
    print_result(checkpoint::inspection_text(*inspection, arguments.keys) +
                 (arguments.verify ? verdict_text(arguments.path, faults) : ""));
  }
  return faults.empty() ? kExitDone : kExitFailed;
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
  app.add_flag("--json", arguments.json, "one JSON object instead of text");
  app.add_option("--keys", arguments.keys,
                 "only keys whose names match PATTERN, one by one; * and ? as in the shell, else a part of the name")
      ->type_name("PATTERN");
  if (const auto code = parse_command(app, args)) return *code;
  log_to_stderr("titan-train inspect");
  auto steps = checkpoint::inspect_run(arguments.path);
  if (!steps.empty()) return inspect_run(arguments, std::move(steps));
  return inspect_one(arguments);
}

}  // namespace titan
