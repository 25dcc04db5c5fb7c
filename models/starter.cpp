#include "models/starter.h"

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/text.h"
#include "config/keys/fields.h"
#include "config/keys/suggest.h"
#include "facts/optimizer_facts.h"
#include "models/catalog.h"
#include "models/starter_mesh.h"

namespace titan::models {
namespace {

constexpr const char* kOptimizer = "AdamW";
// GPU memory reserved for weights, gradients and the optimizer's moments. The rest is for activations, gathered
// weights, CUDA and NCCL.
constexpr double kGigabytesForState = 30;
// Billions of parameters below which a model is one to try the program with, also without a GPU.
constexpr double kSmall = 0.1;

// Returns the bytes of a weight, its gradient and its moments in float32.
double bytes_per_parameter() { return 4.0 * (2 + optimizer_facts(kOptimizer).moments); }

// Tokens of a sequence and of a step from which fine-tuning starts.
constexpr std::int64_t kTunedSeqLen = 2048, kTunedBatchTokens = 1 << 17;

std::string full_name(const Start& start) {
  return start.flavor.empty() ? start.model : start.model + "/" + start.flavor;
}

std::vector<Start> all_starts() {
  std::vector<Start> out;
  for (const CatalogEntry& entry : catalog())
    for (Start& start : entry.starts(entry.name)) out.push_back(std::move(start));
  return out;
}

Start find_start(const std::string& model) {
  std::vector<std::string> names, same_flavor;
  for (const Start& start : all_starts()) {
    if (full_name(start) == model) return start;
    names.push_back(full_name(start));
    if (model == start.flavor) same_flavor.push_back(full_name(start));
  }
  if (same_flavor.size() == 1) return find_start(same_flavor.front());
  const auto near = nearest_name(model, names);
  if (same_flavor.empty() && near) same_flavor = {*near};
  throw ConfigError("titan-train init: error: --model " + model + ": expected one of " + join(names, ", ") +
                    config::did_you_mean(same_flavor));
}

// Values to start from, and the shape that they are for.
struct ShapedStart {
  Start start;
  DecoderShape shape;
};

// Returns values to train the model of a folder on.
ShapedStart start_of_folder(const std::string& folder) {
  const std::string file = folder + "/config.json";
  try {
    const std::string json = read_file(file);
    const CatalogEntry& entry = entry_of_config(json, file);
    const HubDecoder decoder = entry.read_config(json, file);
    const double parameters = static_cast<double>(stats_of(decoder.shape).num_parameters) / 1e9;
    return {{entry.name, "", parameters, std::min(decoder.max_seq_len, kTunedSeqLen) / 2 * 2, kTunedBatchTokens, "1e-5",
             parameters < kSmall ? "none" : "selective", "H100", 80},
            decoder.shape};
  } catch (const Error& error) {
    throw ConfigError("titan-train init: error: --from " + folder + ": " + error.what() +
                      "; expected the folder of a model in Hugging Face's format");
  }
}

ShapedStart start_of(const StarterOptions& options) {
  ShapedStart out;
  if (options.from) {
    out = start_of_folder(*options.from);
  } else {
    out.start = find_start(options.model);
    config::Model model;
    model.name = out.start.model;
    model.flavor = out.start.flavor;
    out.shape = entry_of(model).decoder(model).shape;
  }
  out.start.seq_len = options.seq_len.value_or(out.start.seq_len);
  return out;
}

std::int64_t gpus_needed(const Start& start) {
  std::int64_t gpus = 8;
  while (start.parameters * bytes_per_parameter() / static_cast<double>(gpus) > kGigabytesForState) gpus *= 2;
  return gpus;
}

std::int64_t checked_gpus(const Start& start, const StarterOptions& options) {
  const bool is_small = start.parameters < kSmall;
  const std::int64_t needed = is_small ? 0 : gpus_needed(start);
  if (!options.gpus) return needed;
  const double gigabytes =
      start.parameters * bytes_per_parameter() / static_cast<double>(std::max<std::int64_t>(*options.gpus, 1));
  if (is_small || gigabytes <= kGigabytesForState * 1.5) return *options.gpus;
  throw ConfigError("titan-train init: error: --gpus " + std::to_string(*options.gpus) + ": " + full_name(start) +
                    " takes " + std::to_string(static_cast<std::int64_t>(gigabytes)) +
                    " GB on each for weights, gradients and optimizer state alone; use " + std::to_string(needed) +
                    " GPUs of " + std::to_string(start.gigabytes) + " GB or more");
}

// Returns the GPUs and their mesh: if their number is not given, as many as it takes.
std::pair<std::int64_t, StarterMesh> chosen_mesh(const ShapedStart& of, const StarterOptions& options) {
  constexpr std::int64_t kMostGpus = 1 << 16;
  const Start& start = of.start;
  std::int64_t gpus = checked_gpus(start, options);
  if (start.parameters < kSmall) {
    StarterMesh mesh;
    mesh.local_batch_size = 8;
    mesh.recompute = start.recompute;
    return {gpus, mesh};
  }
  for (; gpus <= kMostGpus; gpus *= 2) {
    if (const auto mesh = choose_mesh(start, of.shape, std::max<std::int64_t>(gpus, 1))) return {gpus, *mesh};
    if (options.gpus) break;
  }
  throw ConfigError("titan-train init: error: " +
                    (options.gpus ? "--gpus " + std::to_string(gpus) + ": " : std::string("--seq-len: ")) +
                    full_name(start) + " with sequences of " + with_thousands(start.seq_len) +
                    " tokens does not fit, however the GPUs share a sequence; use more GPUs, a number that powers of 2 "
                    "divide, or shorter sequences");
}

std::string guessed_dataset(const std::string& path) {
  for (const char* ending : {".jsonl", ".json", ".jsonl.gz", ".jsonl.zst"})
    if (path.ends_with(ending)) return "jsonl";
  // Shards of `titan-train tokenize` are given by the common prefix of their names.
  std::error_code error;
  return !std::filesystem::exists(path, error) && std::filesystem::exists(path + ".json", error) ? "indexed" : "text";
}

std::string quoted_text(const std::string& text) { return config::to_toml_value(config::FieldValue(text)); }

class Starter {
 public:
  explicit Starter(const StarterOptions& options) : Starter(options, start_of(options)) {}

  std::string text() const { return head() + model() + data() + schedule() + ranks() + checkpoints(); }

 private:
  Starter(const StarterOptions& options, const ShapedStart& of) : start_(of.start), options_(options) {
    std::tie(gpus_, mesh_) = chosen_mesh(of, options);
  }
  std::int64_t num_ranks() const { return std::max<std::int64_t>(gpus_, 1); }
  bool is_small() const { return start_.parameters < kSmall; }
  // Returns a name for the run: "llama3-8B", or that of the folder.
  std::string run_name() const {
    if (!options_.from) return start_.model + "-" + start_.flavor;
    const auto folder = std::filesystem::absolute(*options_.from).lexically_normal();
    return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  }
  static std::string count(std::int64_t value) { return std::to_string(value); }

  static std::string line(std::string assignment, const std::string& comment) {
    constexpr std::size_t kColumn = 36;
    assignment.resize(std::max(assignment.size() + 2, kColumn), ' ');
    return assignment + "# " + comment + "\n";
  }

  // Returns a multiple of the rows that all ranks read at once, near the model's suitable batch.
  std::int64_t global_batch_size() const {
    const std::int64_t at_once = num_ranks() / mesh_.ranks_of_batch() * mesh_.local_batch_size;
    const std::int64_t wanted = start_.batch_tokens / start_.seq_len;
    return std::max<std::int64_t>(1, wanted / at_once) * at_once;
  }

  std::string head() const {
    const std::string where =
        gpus_ == 0 ? "CPU" : count(gpus_) + (gpus_ == 1 ? " GPU" : " GPUs of " + count(start_.gigabytes) + " GB");
    std::string start = "titan-train --config job.toml";
    if (gpus_ > 1 && gpus_ <= 8) start = "titan-train --nproc " + count(gpus_) + " --config job.toml";
    if (gpus_ > 8)
      start = "srun -n " + count(gpus_) + " titan-train --config job.toml   (docs/launch.md has other ways)";
    return "# " + full_name(start_) + (options_.from ? " of " + *options_.from : "") + " on " + where +
           ". Made by titan-train init; every key is in docs/config.md and --help.\n#\n"
           "# Check:  titan-train --config job.toml --dry-run --world-size " +
           count(num_ranks()) + (gpus_ > 0 ? " --device " + start_.device : "") + "\n# Start:  " + start +
           "\n\n[job]\n" +
           line("dump_folder = " + quoted_text("./outputs/" + run_name()), "logs, metrics and checkpoints") +
           "\n[metrics]\n" + line("log_freq = 10", "steps between two lines of the log");
  }

  std::string model() const {
    if (options_.from) {
      std::string text = "\n[model]\n# What training starts from: config.json, weights and tokenizer.\nfrom = " +
                         quoted_text(*options_.from) + "\n";
      if (options_.tokenizer)
        text += line("hf_assets_path = " + quoted_text(*options_.tokenizer), "in place of the folder's tokenizer");
      return text;
    }
    const std::string folder = options_.tokenizer.value_or(
        is_small() ? options_.assets + "/tokenizer" : "./assets/hf/" + start_.model + "-" + start_.flavor);
    return "\n[model]\nname = " + quoted_text(start_.model) + "\n" +
           line("flavor = " + quoted_text(start_.flavor), "the size; [model.args] changes parts of it") +
           line("hf_assets_path = " + quoted_text(folder), "a folder with tokenizer.model or tokenizer.json");
  }

  std::string data() const {
    const std::string path = options_.dataset_path.value_or(options_.assets + "/corpus/train");
    return "\n[training]\n"
           "# text: a folder of files; jsonl: {\"text\": ...} lines; chat: conversations (docs/fine-tuning.md);\n"
           "# indexed: what titan-train tokenize writes.\n"
           "dataset = " +
           quoted_text(options_.dataset.value_or(guessed_dataset(path))) + "\ndataset_path = " + quoted_text(path) +
           "\n" + line("seq_len = " + count(start_.seq_len), "tokens of one sequence") +
           (mesh_.pp == 1 ? "# Sequences that a rank computes at once. More is faster until memory is full: see "
                            "--dry-run.\n"
                          : "# Sequences that go through a pipeline one by one. More of them shorten its waits.\n") +
           "local_batch_size = " + count(mesh_.local_batch_size) +
           "\n# Sequences of one step over all ranks: " + with_thousands(global_batch_size() * start_.seq_len) +
           " tokens. A multiple of local_batch_size times " +
           (mesh_.ranks_of_batch() == 1 ? "ranks" : "ranks with data of their own") +
           ".\nglobal_batch_size = " + count(global_batch_size()) + "\nsteps = " +
           count(is_small()      ? 250
                 : options_.from ? 1000
                                 : 10000) +
           "\n" + line("max_norm = 1.0", "gradients are clipped to this norm");
  }

  std::string schedule() const {
    return "\n[optimizer]\nname = " + quoted_text(kOptimizer) + "\n" +
           line("lr = " + start_.lr, "the peak; a sweep finds a better one (docs/sweeps.md)") +
           (is_small() ? "" : "beta2 = 0.95\nweight_decay = 0.1\n") + "\n[lr_scheduler]\n" +
           line("warmup_steps = " + count(is_small() ? 20 : 500), "the rate grows to its peak, then falls") +
           "decay_type = \"cosine\"\nmin_lr_factor = 0.1\n\n[debug]\n" +
           line("seed = 42", "fixes initial weights and the order of the data");
  }

  // Returns the degrees above 1, each with its reason.
  std::string degrees() const {
    std::string text;
    if (mesh_.tp > 1)
      text +=
          "# Ranks of a host share each layer, since one sequence for each rank would not fit, or be too many.\n"
          "tensor_parallel_degree = " +
          count(mesh_.tp) + "\n";
    if (mesh_.cp > 1)
      text +=
          "# Ranks share each sequence, which does not fit into one (docs/parallelism.md).\n"
          "context_parallel_degree = " +
          count(mesh_.cp) + "\n";
    if (mesh_.pp > 1)
      text +=
          "# Ranks have a part of the layers each: they gather weights once for all sequences of a step, and hand\n"
          "# hidden states on. Without a pipeline, each gather would be for less than two sequences.\n"
          "pipeline_parallel_degree = " +
          count(mesh_.pp) + "\n" +
          line("pipeline_parallel_schedule = \"Interleaved1F1B\"", "titan-train schedule draws it");
    return text;
  }

  std::string ranks() const {
    const bool is_selective = mesh_.recompute == "selective";
    return "\n[parallelism]\n# -1: weights, gradients and optimizer state are divided among all ranks of a copy.\n"
           "data_parallel_shard_degree = -1\n" +
           line("data_parallel_replicate_degree = " + count(mesh_.copies), "copies of the model") + degrees() +
           "\n[activation_checkpoint]\n"
           "# none: fastest; selective: computes some of the forward pass again; full: all of it, for the least "
           "memory.\n"
           "mode = " +
           quoted_text(mesh_.recompute) + "\n" + (is_selective ? "selective_ac_option = \"op\"\n" : "");
  }

  std::string checkpoints() const {
    return "\n[checkpoint]\n" + line("enable = true", "the same command continues from the last one") +
           line("interval = " + count(is_small() ? 100 : 500), "steps between two") +
           (is_small() ? "" : line("keep_latest_k = 3", "older ones are deleted")) +
           line("last_save_model_only = false", "true: the last one has the weights alone, and cannot be trained on") +
           (is_small() ? "" : line("async_mode = \"async\"", "training goes on while one is written"));
  }

  Start start_;
  const StarterOptions& options_;
  std::int64_t gpus_ = 0;
  StarterMesh mesh_;
};

}  // namespace

std::string starter_config(const StarterOptions& options) { return Starter(options).text(); }

std::vector<std::string> starter_models() {
  std::vector<std::string> names;
  for (const Start& start : all_starts()) names.push_back(full_name(start));
  return names;
}

}  // namespace titan::models
