#include "apps/flags/init_flags.h"

#include "apps/flags/option_values.h"
#include "base/text.h"
#include "config/keys/largest_sizes.h"

namespace titan {

namespace {

constexpr std::int64_t kLongestSequence = config::kMostTokens / 8;  // a small model's batch has eight

// Returns "llama3/8B, 70B, llama2/7B": each model's name once.
std::string in_short(const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  std::string model;
  for (const std::string& name : names) {
    const auto slash = name.find('/');
    parts.push_back(name.substr(0, slash) == model ? name.substr(slash + 1) : name);
    model = name.substr(0, slash);
  }
  return join(parts, ", ");
}

}  // namespace

void declare(CLI::App& app, InitFlags& flags) {
  app.name("titan-train init");
  app.description(
      "Prints a configuration to start from, with comments, whose values suit the model and the machine:\n"
      "  titan-train init --model llama3/8B --gpus 64 --dataset data/train.jsonl > job.toml\n"
      "  titan-train init --from models/Qwen2.5-0.5B --dataset data/train.jsonl > job.toml");
  const auto names = models::starter_models();
  suggest(app.add_option("--model", flags.model, "NAME/FLAVOR: " + in_short(names))->capture_default_str(), names);
  suggest_path(app.add_option("--from", flags.from,
                              "folder of a model in Hugging Face's format to train on, in place of --model")
                   ->excludes("--model"));
  app.add_option("--gpus", flags.gpus,
                 "GPUs of 80 GB, for 405B of 141 GB; 0: CPU (default: as many as the model needs)")
      ->check(integer_between(0, kLargestWorld));
  app.add_option("--seq-len", flags.seq_len,
                 "tokens of a sequence; long ones get context parallelism (default: what suits the model)")
      ->check(even_between(2, kLongestSequence));
  suggest_path(app.add_option("--dataset", flags.dataset_path, "file or folder with the data"));
  app.add_option("--kind", flags.dataset, "text, jsonl, chat or indexed (default: by the name of the data)")
      ->check(CLI::IsMember({"text", "jsonl", "chat", "indexed"}));
  suggest_path(app.add_option("--tokenizer", flags.tokenizer, "folder with tokenizer.model or tokenizer.json"));
  CLI::Option* examples = app.add_option(
      "--examples", flags.examples,
      "instead, copy what was installed with the program to this folder: configs/, assets/ with a small corpus and its "
      "tokenizer, deploy/ for clusters, and examples/: a small model to fine-tune, a program that uses the engine");
  for (const char* other : {"--model", "--from", "--gpus", "--seq-len", "--dataset", "--kind", "--tokenizer"})
    examples->excludes(app.get_option(other));
  suggest_path(examples);
}

}  // namespace titan
