#include "apps/flags/generate_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <functional>
#include <limits>

#include "apps/flags/option_values.h"
#include "base/error.h"

namespace titan {
namespace {

constexpr const char* kGenerateHelp =
    R"(Prints what a trained model writes after a prompt. PATH is
  a run's folder          outputs/debug (job.dump_folder), or outputs/debug/checkpoint: its newest complete step
  one step                outputs/debug/checkpoint/step-1000, ours, TorchTitan's or any DCP folder
  Hugging Face weights    a folder with *.safetensors and config.json
  a file of torch.save    model.pt, a dict of name -> tensor
Model, tokenizer and length come from the checkpoint's own configuration. With --nproc, or under torchrun, mpirun or
srun, the model is split over the ranks, so that none needs memory for all of it.)";

constexpr const char* kGenerateFooter =
    R"(Examples:
  titan-train generate --checkpoint outputs/debug --prompt "def forward(" --max-tokens 64
  titan-train generate --checkpoint llama-hf --interactive --temperature 0.7 --top-p 0.9 --seed 1
  titan-train generate --checkpoint outputs/debug --prompts prompts.txt --temperature 0 --batch 8 --out samples.jsonl
  titan-train generate --checkpoint outputs/large --prompt "import " --nproc 4 --tensor-parallel 2
  titan-train generate --checkpoint models/Qwen2.5-0.5B-Instruct --chat --interactive --max-tokens 1024
Exit codes: 0 done, 1 weights that are damaged or of another model, 2 wrong command line or input, 130 Ctrl-C.)";

// Parses a number. Its error says what the option expects; that of CLI11 says only that a conversion failed.
template <typename T>
T number(const std::string& option, const std::string& text, T least, T most, const std::string& expected) {
  T value{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault == std::errc() && end == text.data() + text.size() && value >= least && value <= most) return value;
  throw ConfigError("titan-train generate: error: " + option + ": expected " + expected + "; found \"" + text + "\"");
}

template <typename T>
T at_least(const std::string& option, const std::string& text, T least) {
  return number<T>(option, text, least, std::numeric_limits<T>::max(), "an integer, at least " + std::to_string(least));
}

constexpr std::int64_t kMostSamples = 1'000'000;  // of a prompt, or of prompts together

std::int64_t number_of_samples(const std::string& option, const std::string& text) {
  return number<std::int64_t>(option, text, 1, kMostSamples, "an integer, 1 to " + std::to_string(kMostSamples));
}

}  // namespace

void declare(CLI::App& app, GenerateFlags& flags) {
  app.name("titan-train generate");
  app.description(kGenerateHelp);
  app.footer(kGenerateFooter);
  const auto add_number = [&app](const std::string& name, const std::string& doc, const std::string& type,
                                 std::function<void(const std::string&)> take) {
    app.add_option_function<std::string>(name, std::move(take), doc)->type_name(type);
  };
  app.add_option("--checkpoint", flags.checkpoint, "whose weights to use, see above")->required()->type_name("PATH");
  app.add_option("--prompt", flags.prompt, "what the text begins with; - reads it from standard input")
      ->type_name("TEXT");
  app.add_option(
         "--prompts", flags.prompts,
         "a file with one prompt per line; empty lines are skipped. A .jsonl file has objects with \"prompt\" or, "
         "with --chat, \"messages\"")
      ->type_name("FILE");
  add_number("--batch", "prompts that the model continues together (default: 1)", "N",
             [&](const auto& text) { flags.batch = number_of_samples("--batch", text); });
  app.add_flag("--interactive", flags.interactive, "read prompts from the terminal, one per line, until Ctrl-D");
  app.add_flag(
      "--chat", flags.chat,
      "prompts are messages of a user, in the chat template of the tokenizer's folder; with --interactive, one "
      "conversation, in which /new begins another");
  app.add_option("--system", flags.system, "with --chat: the message of the system, before the first of the user")
      ->type_name("TEXT");
  app.add_option("--stop", flags.stop, "end before this text; may be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_number("--max-tokens", "tokens to write at most (default: 128)", "N",
             [&](const auto& text) { flags.max_tokens = at_least<std::int64_t>("--max-tokens", text, 1); });
  add_number("--num", "samples for each prompt (default: 1)", "N",
             [&](const auto& text) { flags.num = number_of_samples("--num", text); });
  add_number("--temperature", "0: always the likeliest token; 1: as the model says (default: 1)", "T",
             [&](const auto& text) {
               flags.temperature =
                   number("--temperature", text, 0.0, std::numeric_limits<double>::max(), "a number, at least 0");
             });
  add_number("--top-k", "draw among the K likeliest tokens only", "K",
             [&](const auto& text) { flags.top_k = at_least<std::int64_t>("--top-k", text, 1); });
  add_number("--top-p", "draw among the likeliest tokens that are P of all together", "P", [&](const auto& text) {
    flags.top_p = number("--top-p", text, std::numeric_limits<double>::min(), 1.0, "a number above 0, up to 1");
  });
  add_number("--seed", "repeats what was drawn; each further sample takes the next seed (default: another every time)",
             "S", [&](const auto& text) { flags.seed = at_least<std::uint64_t>("--seed", text, 0); });
  app.add_option("--config", flags.config, "job.toml of a checkpoint that holds none")->type_name("FILE");
  app.add_option("--tokenizer", flags.tokenizer, "folder of the tokenizer, in place of the configuration's")
      ->type_name("FOLDER");
  add_number("--context", "tokens of prompt and text together (default: what the model was trained with)", "N",
             [&](const auto& text) { flags.context = at_least<std::int64_t>("--context", text, 2); });
  add_device_and_dtype(app, flags.device, flags.dtype);
  app.add_flag("--json", flags.json,
               "one JSON object for each sample: prompt, text, the ids of both, and why it ended");
  add_number("--logprobs", "with --json: the log-probability of each token, and the K likeliest with theirs", "K",
             [&](const auto& text) { flags.logprobs = at_least<std::int64_t>("--logprobs", text, 1); });
  app.add_option("--out", flags.out, "the file for the objects of --json, in place of standard output")
      ->type_name("FILE");
  add_number("--nproc", "ranks to start on this machine, over which the model is split", "N",
             [&](const auto& text) { flags.nproc = at_least<std::int64_t>("--nproc", text, 1); });
  app.add_flag("--oversubscribe", flags.oversubscribe, "with --nproc: however many the machine is good for");
  add_number("--tensor-parallel",
             "ranks that share each product (default: 1: each rank gathers the parameters, one block at a time)", "N",
             [&](const auto& text) { flags.tensor_parallel = at_least<std::int64_t>("--tensor-parallel", text, 1); });
  app.add_flag("--quiet", flags.quiet, "no word about speed and seed on standard error");
}

}  // namespace titan
