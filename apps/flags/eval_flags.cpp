#include "apps/flags/eval_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "apps/flags/option_values.h"
#include "base/error.h"

namespace titan {
namespace {

constexpr const char* kEvalHelp =
    R"(Scores a trained model on tasks: multiple choice by log-likelihood, and perplexity of texts. PATH is
  a run's folder          outputs/debug (job.dump_folder), or outputs/debug/checkpoint: its newest complete step
  one step                outputs/debug/checkpoint/step-1000, ours, TorchTitan's or any DCP folder
  Hugging Face weights    a folder with *.safetensors and config.json
  a file of torch.save    model.pt, a dict of name -> tensor
Each rank holds the whole model, and the ranks share the texts. Scores, prompts and tokens are those of
lm-evaluation-harness (docs/evaluation.md). A task is "KIND PATH" or "NAME=KIND PATH", where PATH is
a file or folder of JSON lines, and KIND
  hellaswag, arc, mmlu    records as in these data sets on Hugging Face's hub
  choice                  {"query": TEXT, "choices": [TEXT, ...], "gold": INDEX}
  text                    files of text: one document each
  jsonl, jsonl:FIELD      JSON lines with the document in "text", or in FIELD
After the path of multiple choice, " fewshot=PATH" names a file of solved questions, of which --num-fewshot come before
each question; " fewshot=N:PATH" says how many.)";

constexpr const char* kEvalFooter =
    R"(Examples:
  titan-train eval outputs/debug --task "hellaswag hellaswag_val.jsonl" --limit 200
  titan-train eval llama-hf --task "arc_easy=arc ARC-Easy.jsonl" --task "arc_challenge=arc ARC-Challenge.jsonl" --json
  titan-train eval llama-hf --task "mmlu mmlu_test.jsonl fewshot=5:mmlu_dev.jsonl"
  titan-train eval outputs/debug --task "text held_out.txt" --nproc 2
Exit codes: 0 done, 1 weights that are damaged or of another model, 2 wrong command line or input, 130 Ctrl-C.)";

std::int64_t at_least(const std::string& option, const std::string& text, std::int64_t least) {
  std::int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault == std::errc() && end == text.data() + text.size() && value >= least) return value;
  throw ConfigError("titan-train eval: error: " + option + ": expected an integer, at least " + std::to_string(least) +
                    "; found \"" + text + "\"");
}

}  // namespace

void declare(CLI::App& app, EvalFlags& flags) {
  app.name("titan-train eval");
  app.description(kEvalHelp);
  app.footer(kEvalFooter);
  const auto add_number = [&app](const std::string& name, const std::string& doc, std::int64_t least, auto& value) {
    app.add_option_function<std::string>(
           name, [name, least, &value](const std::string& text) { value = at_least(name, text, least); }, doc)
        ->type_name("N");
  };
  app.add_option("path", flags.path, "whose weights to use, see above")->required()->type_name("PATH");
  app.add_option("--task", flags.tasks, "what to score the model on, see above; may be given several times")
      ->type_name("TASK")
      ->required()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_number("--limit", "take only the first N items of each task", 1, flags.limit);
  add_number("--num-fewshot", "solved questions before each question, from each task's fewshot=PATH (default: 0)", 0,
             flags.num_fewshot);
  add_number("--batch-size", "texts that are scored at once, at most (default: 8)", 1, flags.batch_size);
  app.add_option("--config", flags.config, "job.toml of a checkpoint that holds none")->type_name("FILE");
  app.add_option("--tokenizer", flags.tokenizer, "folder of the tokenizer, in place of the configuration's")
      ->type_name("FOLDER");
  add_number("--context", "tokens that the model takes at once (default: what it was trained with)", 2, flags.context);
  add_device_and_dtype(app, flags.device, flags.dtype);
  app.add_option("--log-likelihoods", flags.log_likelihoods,
                 "also write one JSON object for each scored text to this file, in the order of the tasks")
      ->type_name("FILE");
  add_number("--nproc", "start N ranks on this machine", 1, flags.nproc);
  app.add_flag("--oversubscribe", flags.oversubscribe, "allow more ranks than this machine has cores or GPUs for");
  app.add_flag("--json", flags.json, "print one JSON object with all scores");
  app.add_flag("--quiet", flags.quiet, "no word about speed on standard error");
}

}  // namespace titan
