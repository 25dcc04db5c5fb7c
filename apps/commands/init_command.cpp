#include "apps/commands/init_command.h"

#include <CLI/CLI.hpp>

#include "apps/common/print_result.h"
#include "base/error.h"
#include "config/starter.h"

namespace titan {

int run_init_command(const std::vector<std::string>& args) {
  CLI::App app(
      "Prints a configuration to start from, with comments, whose values suit the model and the machine:\n"
      "  titan-train init --model llama3/8B --gpus 64 --dataset data/train.jsonl > job.toml",
      "titan-train init");
  config::StarterOptions options;
  app.add_option("--model", options.model, "NAME/FLAVOR: llama3/debugmodel, 8B, 70B, 405B, llama2/7B, 13B, 70B")
      ->capture_default_str();
  app.add_option("--gpus", options.gpus,
                 "GPUs of 80 GB, for 405B of 141 GB; 0: CPU (default: as many as the model needs)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--dataset", options.dataset_path, "file or folder with the data");
  app.add_option("--kind", options.dataset, "text, jsonl or indexed (default: by the name of the data)")
      ->check(CLI::IsMember({"text", "jsonl", "indexed"}));
  app.add_option("--tokenizer", options.tokenizer, "folder with tokenizer.model or tokenizer.json");
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::CallForHelp&) {
    print_result(app.help());
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(std::string("titan-train init: error: ") + error.what() + "; --help lists what there is");
  }
  print_result(config::starter_config(options));
  return kExitDone;
}

}  // namespace titan
