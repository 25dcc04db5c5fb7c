#include "apps/flags/inspect_flags.h"

#include <CLI/CLI.hpp>

namespace titan {
namespace {

constexpr const char* kInspectHelp =
    R"(What a run or a checkpoint holds. PATH is
  a run's dump folder     outputs: how far the run has come, its checkpoints, the command that goes on with it
  a run's checkpoints     outputs/checkpoint: lists its steps, whole or not, and the newest
  a step of a run         outputs/checkpoint/step-1000, ours, TorchTitan's or any DCP folder
  Hugging Face weights    a folder with *.safetensors, or one such file
  a file of torch.save    model.pt, a dict of name -> tensor
Reads metadata alone, whatever the size, unless --verify asks for more.)";

constexpr const char* kExitCodes = "Exit codes: 0 done, 1 damaged or no checkpoint, 2 wrong command line.";

}  // namespace

void declare(CLI::App& app, InspectFlags& flags) {
  app.name("titan-train inspect");
  app.description(kInspectHelp);
  app.footer(kExitCodes);
  app.add_option("PATH", flags.path, "what to look at")->required();
  app.add_flag(
      "--verify", flags.verify,
      "read everything: files and records against their checksums, shapes, boxes that must make up each tensor");
  app.add_flag("--json", flags.json, "one JSON object instead of text, with all keys and files");
  app.add_flag("--all", flags.all, "list the keys of the optimizer and the run too, and the files");
  app.add_option("--keys", flags.pattern,
                 "only keys whose names match PATTERN, one by one; * and ? as in the shell, else a part of the name")
      ->type_name("PATTERN");
}

}  // namespace titan
