#include "config/command_line/modes.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "config/keys/datasets.h"

namespace titan::config {
namespace {

constexpr Mode kModes[] = {
    {"config", "a TOML file", false, "",
     "what to train and how; flags win over it, it wins over defaults; - is standard input; also -c"},
    {"dry_run", "", false, "", "say what a run would take, bytes per rank by kind first, start nothing, and exit"},
    {"world_size", "an integer, at least 1", false, "", "ranks to pretend with --dry-run or --print-config"},
    {"device", "a model or an amount of memory", false, "",
     "with --dry-run: whether a rank fits it (H100, A100-40GB, 24GiB); exit code 1 if not"},
    {"json", "", false, "", "with --dry-run: one JSON object with all figures, sizes in bytes, not a table"},
    {"nproc", "an integer, at least 1", false, "", "ranks to start on this machine without a launcher"},
    {"oversubscribe", "", false, "", "with --nproc: also more ranks than this machine's cores and memory are good for",
     true},
    {"log_rank", "ranks", false, "",
     "whose log the terminal shows, step by step: all, or some, as in 0,4-7; rank 0's without it. Warnings of all "
     "ranks are shown, and each rank's log is in its file under job.dump_folder",
     true},
    {"overwrite", "", false, "",
     "begin anew where job.dump_folder holds a finished run or another one; what is there is written over"},
    {"no_preflight", "", false, "", "start also where free memory or disk space look too small for the run", true},
    {"print_config", "=origins or =changed", true, "origins,changed",
     "print the resolved configuration as TOML and exit; =origins: and where each value came from; =changed: only what "
     "differs from the defaults"},
    {"help", "a table, a key, a word, or all", true, "",
     "print a table, a key, the keys about a word, or all there is, and exit; without a value an index of it; also -h"},
    {"version", "", false, "", "print the versions of this program and of what it is built on, and exit; also -V"},
    {"completion", "a shell", false, "bash,zsh,fish", "print a script that completes flags and values, and exit"},
    {"print_docs", "", false, "", "print docs/config.md and exit", true},
};

constexpr CommandFlag kCommandFlags[] = {
    {"init", "--model", "llama3/debugmodel,llama3/8B,llama3/70B,llama3/405B,llama2/7B,llama2/13B,llama2/70B"},
    {"init", "--gpus", "any"},
    {"init", "--dataset", "path"},
    {"init", "--kind", "text,jsonl,indexed"},
    {"init", "--tokenizer", "path"},
    {"tokenizer train", "--input", "path"},
    {"tokenizer train", "--vocab-size", "any"},
    {"tokenizer train", "--output", "path"},
    {"tokenizer train", "--dataset", "jsonl,text"},
    {"tokenizer train", "--text-key", "any"},
    {"tokenizer train", "--type", "bpe,unigram"},
    {"tokenizer train", "--on-bad-record", "error,skip"},
    {"tokenizer encode", "--tokenizer", "path"},
    {"tokenizer encode", "--bos", ""},
    {"tokenizer encode", "--eos", ""},
    {"tokenizer encode", "--jsonl", "path"},
    {"tokenizer encode", "--text-key", "any"},
    {"tokenizer decode", "--tokenizer", "path"},
    {"tokenizer decode", "--skip-special-tokens", ""},
    {"tokenizer decode", "--jsonl", ""},
    {"tokenize", "--tokenizer", "path"},
    {"tokenize", "--input", "path"},
    {"tokenize", "--output", "path"},
    {"tokenize", "--dataset", "jsonl,text"},
    {"tokenize", "--text-key", "any"},
    {"tokenize", "--workers", "any"},
    {"tokenize", "--append-bos", ""},
    {"tokenize", "--append-eos", ""},
    {"tokenize", "--on-bad-record", "error,skip"},
    {"tokenize", "--shard-documents", "any"},
    {"tokenize", "--allow-changed-files", ""},
    {"sweep", "--grid", "any"},
    {"sweep", "--config", "path"},
    {"sweep", "--folder", "path"},
    {"sweep", "--nproc", "any"},
    {"sweep", "--report", "path"},
    {"sweep", "--objective", "any"},
    {"sweep", "--dry-run", ""},
    {"sweep", "--retry-failed", ""},
    {"sweep", "--max-parallel", "any"},
    {"sweep", "--launcher", "any"},
    {"report", "--output", "path"},
    {"plot", "--metric", "any"},
    {"plot", "--smooth", "any"},
    {"plot", "--log", ""},
    {"plot", "--columns", "any"},
    {"plot", "--rows", "any"},
    {"compare", "--tolerance", "any"},
    {"compare", "--metric", "any"},
    {"compare", "--json", ""},
    {"inspect", "--verify", ""},
    {"inspect", "--json", ""},
    {"inspect", "--all", ""},
    {"inspect", "--keys", "any"},
    {"convert", "--to", "hf,dcp,torch"},
    {"convert", "--export-dtype", "same,float32,bfloat16,float16"},
    {"convert", "--config", "path"},
    {"convert", "--model-flavor", "debugmodel,8B,70B,405B,7B,13B"},
    {"convert", "--model-name", "llama3,llama2"},
    {"convert", "--tokenizer", "path"},
    {"convert", "--overwrite", ""},
    {"convert", "--allow-overflow", ""},
    {"doctor", "--config", "path"},
    {"doctor", "--nproc", "any"},
    {"doctor", "--oversubscribe", ""},
    {"doctor", "--json", ""},
    {"generate", "--checkpoint", "path"},
    {"generate", "--prompt", "any"},
    {"generate", "--prompts", "path"},
    {"generate", "--interactive", ""},
    {"generate", "--max-tokens", "any"},
    {"generate", "--num", "any"},
    {"generate", "--context", "any"},
    {"generate", "--temperature", "any"},
    {"generate", "--top-k", "any"},
    {"generate", "--top-p", "any"},
    {"generate", "--seed", "any"},
    {"generate", "--config", "path"},
    {"generate", "--tokenizer", "path"},
    {"generate", "--device", "auto,cpu,cuda"},
    {"generate", "--dtype", "auto,float32,bfloat16"},
    {"generate", "--json", ""},
    {"generate", "--quiet", ""},
};

struct UsualValues {
  std::string_view name;
  std::string_view values;
};

constexpr UsualValues kUsualValues[] = {
    {"model.name", "llama3,llama2"},
    {"model.flavor", "debugmodel,debugmodel_flex_attn,debugmodel_varlen_attn,8B,8B_flex,8B_varlen,70B,405B,7B,13B"},
    {"device", "H100,H200,B200,A100,A100-40GB,L40S,A10G,4090,V100"},
};

constexpr Subcommand kSubcommands[] = {
    {"init", "", "print a configuration to start from, for a model and a number of GPUs"},
    {"tokenizer", "train,encode,decode", "train a tokenizer, or use one on text"},
    {"tokenize", "", "turn text into shards of tokens, for training.dataset = \"indexed\""},
    {"sweep", "", "run many jobs that differ in some keys, and compare them"},
    {"report", "", "make a page of one run or several: curves, events, differences"},
    {"plot", "", "draw curves of runs in the terminal"},
    {"compare", "", "find the first step at which two runs part, and in which parameter"},
    {"inspect", "", "say what a checkpoint holds, and whether it is whole"},
    {"convert", "", "turn checkpoints into Hugging Face's format and back"},
    {"doctor", "", "say whether this machine, or all ranks of a job, are ready to train"},
    {"generate", "", "print what a trained model writes after a prompt"},
};

}  // namespace

std::span<const Mode> modes() { return kModes; }
std::span<const Subcommand> subcommands() { return kSubcommands; }

std::string typed_name(const Mode& mode) {
  std::string name(mode.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::span<const CommandFlag> command_flags() { return kCommandFlags; }

std::vector<std::string> usual_values(std::string_view name) {
  if (name == "training.dataset" || name == "validation.dataset") return dataset_kinds();
  const auto* found = std::ranges::find(kUsualValues, name, &UsualValues::name);
  return found == std::end(kUsualValues) ? std::vector<std::string>{} : split(found->values, ',');
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Subcommand& command : kSubcommands) names.emplace_back(command.name);
  return names;
}

}  // namespace titan::config
