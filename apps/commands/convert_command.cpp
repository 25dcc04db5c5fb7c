#include "apps/commands/convert_command.h"

#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <utility>

#include "apps/common/parse_command.h"
#include "apps/saved/convert_plan.h"
#include "apps/saved/model_source.h"
#include "apps/saved/run_state.h"
#include "apps/common/print_result.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/hugging_face/hugging_face_files.h"
#include "checkpoint/tools/convert.h"
#include "checkpoint/tools/inspect.h"
#include "config/load.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_export.h"
#include "models/registry.h"

namespace titan {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointKind;
using checkpoint::Conversion;
using checkpoint::TensorInfo;

constexpr std::uint64_t kBlockBytes = 8 << 20;  // of one read

constexpr const char* kConvertHelp =
    R"(Copies a model between checkpoint formats, in one process and in little memory: tensors pass through block by block.
  dcp      a step folder, ours, TorchTitan's or any DCP folder: parameters under our names
  hf       a folder of Hugging Face safetensors with index and config.json, for transformers
  torch    one file for torch.load(weights_only=True): a dict of our names -> tensors
Only the model is copied: no optimizer, no step. To and from hf the parameters' names change, and the rows of wq and wk
their order; the shape of the model for that comes from SOURCE (its titan.config.toml or config.json). Other programs'
checkpoints have none: --config or --model-flavor says it, or the config.toml two folders above step-N. A folder of hf
gets the run's tokenizer too, from model.hf_assets_path as the run had it, or from --tokenizer.)";

constexpr const char* kFooter =
    R"(Examples:
  titan-train convert outputs/checkpoint/step-1000 llama-hf --export-dtype bfloat16
  titan-train convert Llama-3.1-8B llama-dcp          # then --checkpoint.initial_load_path llama-dcp
  titan-train convert outputs/checkpoint/step-1000 model.pt
Exit codes: 0 done, 1 a source that cannot be read or does not fit, 2 wrong command line.)";

struct ConvertArguments {
  std::string source;
  std::string target;
  std::string to;
  std::string dtype = "same";
  std::string config;
  std::string model_name = "llama3";
  std::string model_flavor;
  std::string tokenizer;
  bool overwrite = false;
  bool may_overflow = false;
};

CheckpointKind parse_kind(const std::string& name) {
  for (const auto kind : {CheckpointKind::kDcp, CheckpointKind::kHuggingFace, CheckpointKind::kTorch})
    if (name == checkpoint::kind_name(kind)) return kind;
  throw ConfigError("titan-train convert: error: --to: expected hf, dcp or torch, found \"" + name + "\"");
}

CheckpointKind target_kind(const ConvertArguments& arguments, CheckpointKind source) {
  if (!arguments.to.empty()) return parse_kind(arguments.to);
  const fs::path extension = fs::path(arguments.target).extension();
  if (extension == ".pt" || extension == ".pth") return CheckpointKind::kTorch;
  return source == CheckpointKind::kDcp ? CheckpointKind::kHuggingFace : CheckpointKind::kDcp;
}

ModelShape shape_of(const config::Model& model, std::int64_t seq_len, const std::string& origin) {
  ModelShape shape;
  shape.spec = models::make_train_spec(model, seq_len);
  const ModelStats& stats = shape.spec->stats;
  const std::string architecture =
      checkpoint::parse_hugging_face_config(shape.spec->hugging_face_config, origin).architecture;
  shape.names = models::hugging_face_names(architecture, stats.num_heads, stats.num_kv_heads);
  shape.origin = origin;
  return shape;
}

ModelShape shape_of_job(const config::Model& model, const std::string& origin) {
  ModelShape shape = shape_of(model, 1, origin);
  shape.tokenizer = model.hf_assets_path;
  return shape;
}

ModelShape shape_from_config(const std::string& file) {
  config::CommandLine command_line;
  command_line.config_file = file;
  return shape_of_job(config::load_job_config(command_line).config.model, file);
}

// As the run wrote it: this process's environment has no say.
ModelShape shape_of_run(const fs::path& file) {
  return shape_of_job(config::load_job_config_text(read_file(file), file.string()).config.model, file.string());
}

ModelShape shape_from_hugging_face(const fs::path& file) {
  const std::string json = read_file(file);
  const auto config = checkpoint::parse_hugging_face_config(json, file.string());
  ModelShape shape;
  shape.spec = models::make_train_spec_of_hugging_face(json, file.string());
  const ModelStats& stats = shape.spec->stats;
  shape.names = models::hugging_face_names(config.architecture, stats.num_heads, stats.num_kv_heads);
  shape.tied_embeddings = config.tied_embeddings;
  shape.origin = file.string();
  return shape;
}

// Returns what a folder of dcp gets of a model that comes from Hugging Face. It has no configuration of a run, and says
// by this which model it is, with which tokenizer.
checkpoint::SmallFiles description_beside(const ConvertArguments& arguments) {
  const fs::path config = config_beside(arguments.source);
  if (!fs::is_regular_file(config)) return {};
  auto files = data::tokenizer_files(config.parent_path());
  files["config.json"] = read_file(config);
  return files;
}

std::optional<ModelShape> shape_that_was_asked_for(const ConvertArguments& arguments) {
  if (!arguments.config.empty()) return shape_from_config(arguments.config);
  if (!arguments.model_flavor.empty()) {
    config::Model model;
    model.name = arguments.model_name;
    model.flavor = arguments.model_flavor;
    return shape_of(model, 1, model.name + " " + model.flavor);
  }
  return std::nullopt;
}

// What to do where nothing says it.
std::string unknown_shape(const ConvertArguments& arguments, CheckpointKind from) {
  return "titan-train convert: error: " + arguments.source +
         " does not say how many heads the model has: there is no " +
         (from == CheckpointKind::kHuggingFace ? config_beside(arguments.source).string()
                                               : "config.toml two folders above it") +
         ". Name a job that does (--config FILE), or its flavor (--model-flavor 8B)";
}

ModelShape find_shape(const ConvertArguments& arguments, CheckpointKind from) {
  const auto asked_for = shape_that_was_asked_for(arguments);
  const auto source = find_model_source(arguments.source, from, asked_for.has_value());
  if (!source) throw ConfigError(unknown_shape(arguments, from));
  if (source->kind == ModelSource::Kind::kNamed) return *asked_for;
  if (source->kind == ModelSource::Kind::kHuggingFace) return shape_from_hugging_face(source->file);
  ModelShape shape = shape_of_run(source->file);
  if (asked_for)
    check_same_model(*asked_for->spec, {"titan-train convert", asked_for->origin, "--config and --model-flavor"},
                     *shape.spec, source->file);
  return shape;
}

HuggingFaceTokenizer read_tokenizer(const std::string& path, const ModelShape& shape) {
  const auto tokenizer = data::make_tokenizer(path);
  if (shape.spec) data::check_vocab_size(*tokenizer, shape.spec->stats.vocab_size);
  return data::export_tokenizer(path, *tokenizer);
}

// A folder that moved since, or another one of the same name: the model is converted all the same.
HuggingFaceTokenizer tokenizer_of_run(const ConvertArguments& arguments, const ModelShape& shape) {
  std::string reason = "nothing says which tokenizer the model was trained with";
  try {
    if (!shape.tokenizer.empty()) {
      HuggingFaceTokenizer found = read_tokenizer(shape.tokenizer, shape);
      const auto expected = checkpoint::tokenizer_of_run(arguments.source);
      const std::string fingerprint = data::tokenizer_fingerprint(shape.tokenizer);
      if (!expected || *expected == fingerprint) return found;
      reason = shape.tokenizer + " is not the tokenizer that the model was trained with: it is " + fingerprint +
               ", and was " + *expected;
    }
  } catch (const std::exception& error) {
    reason = std::string(error.what()) + " (model.hf_assets_path in " + shape.origin + ")";
  }
  spdlog::warn("{} has no tokenizer: {}. Add it with --tokenizer PATH", arguments.target, reason);
  return {};
}

// Beside the weights of a configuration's model.
checkpoint::SmallFiles small_files_of(const ConvertArguments& arguments, const ModelShape& shape,
                                      c10::ScalarType dtype) {
  HuggingFaceTokenizer tokenizer =
      arguments.tokenizer.empty() ? tokenizer_of_run(arguments, shape) : read_tokenizer(arguments.tokenizer, shape);
  auto files = checkpoint::describe_model(shape.spec->hugging_face_config, dtype, tokenizer.bos_id, tokenizer.eos_id);
  files.merge(tokenizer.files);
  return files;
}

// Those of weights in the same format: what stands beside them comes along.
checkpoint::SmallFiles small_files_beside(const ConvertArguments& arguments, c10::ScalarType dtype) {
  constexpr const char* kGeneration = "generation_config.json";
  const fs::path config = config_beside(arguments.source);
  if (!arguments.tokenizer.empty()) {
    auto tokenizer = read_tokenizer(arguments.tokenizer, {});
    auto files = checkpoint::describe_model(read_file(config), dtype, tokenizer.bos_id, tokenizer.eos_id);
    files.merge(tokenizer.files);
    return files;
  }
  auto files = data::tokenizer_files(config.parent_path());
  files["config.json"] = checkpoint::with_dtype(read_file(config), dtype);
  const fs::path generation = config.parent_path() / kGeneration;
  if (fs::is_regular_file(generation)) files[kGeneration] = read_file(generation);
  return files;
}

// Checks weights that keep their names. A model that cannot be built here is copied as it is.
void check_complete(const ConvertArguments& arguments, const std::vector<Conversion>& plan) {
  const fs::path config = config_beside(arguments.source);
  if (!fs::is_directory(arguments.source) || !fs::is_regular_file(config)) return;
  std::optional<ModelShape> shape;
  try {
    shape = shape_from_hugging_face(config);
  } catch (const Error& error) {
    spdlog::info("{} is copied without a look at which tensors it should have: {}", arguments.source, error.what());
    return;
  }
  std::vector<TensorInfo> tensors;
  for (const Conversion& each : plan) tensors.push_back(each.target);
  plan_renamed(tensors, /*to_hub=*/false, *shape, "same");
}

std::unique_ptr<checkpoint::TensorSink> make_sink(const ConvertArguments& arguments, CheckpointKind to,
                                                  const std::vector<Conversion>& plan,
                                                  checkpoint::SmallFiles small_files) {
  std::vector<TensorInfo> tensors;
  for (const Conversion& each : plan) tensors.push_back(each.target);
  if (to == CheckpointKind::kDcp)
    return checkpoint::make_dcp_sink(arguments.target, std::move(tensors), std::move(small_files));
  if (to == CheckpointKind::kTorch) return checkpoint::make_torch_sink(arguments.target, std::move(tensors));
  return checkpoint::make_safetensors_sink(arguments.target, std::move(tensors), std::move(small_files));
}

void check_target(const ConvertArguments& arguments, CheckpointKind to) {
  std::string extension = fs::path(arguments.target).extension();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool is_file = extension == ".pt" || extension == ".pth";
  const bool is_other_file = extension == ".safetensors" || extension == ".bin" || extension == ".ckpt";
  if (to != CheckpointKind::kTorch && (is_file || is_other_file))
    throw ConfigError("titan-train convert: error: " + arguments.target + " is the name of a file, and " +
                      checkpoint::kind_name(to) + " is a folder: name a folder" +
                      (is_file ? ", or leave --to out" : "; one file is written with --to torch, named *.pt"));
  std::error_code error;
  if (!arguments.overwrite && fs::exists(arguments.target, error))
    throw ConfigError("titan-train convert: error: " + arguments.target +
                      " exists; choose another target, or replace it with --overwrite");
  if (fs::exists(arguments.target, error) && fs::equivalent(arguments.source, arguments.target, error))
    throw ConfigError("titan-train convert: error: source and target are the same");
}

int convert(ConvertArguments arguments) {
  const std::string named = std::exchange(arguments.source, newest_checkpoint(arguments.source).string());
  const CheckpointKind from = checkpoint::detect_kind(arguments.source);
  const CheckpointKind to = target_kind(arguments, from);
  check_target(arguments, to);
  if (!arguments.tokenizer.empty() && to != CheckpointKind::kHuggingFace)
    throw ConfigError("titan-train convert: error: --tokenizer goes with --to hf: other formats have no tokenizer");
  const bool to_hub = to == CheckpointKind::kHuggingFace, from_hub = from == CheckpointKind::kHuggingFace;
  const auto source = checkpoint::open_source(arguments.source, from);
  if (!from_hub) check_own_names(source->tensors(), arguments.source);
  std::vector<Conversion> plan;
  checkpoint::SmallFiles small_files;
  if (to_hub != from_hub) {
    const ModelShape shape = find_shape(arguments, from);
    plan = plan_renamed(source->tensors(), to_hub, shape, arguments.dtype);
    if (to_hub) small_files = small_files_of(arguments, shape, dtype_of(plan));
    if (to == CheckpointKind::kDcp) small_files = description_beside(arguments);
  } else {
    plan = plan_same_names(source->tensors(), arguments.dtype);
    if (to_hub) check_complete(arguments, plan);
    if (to_hub) small_files = small_files_beside(arguments, dtype_of(plan));
  }
  if (plan.empty()) throw CheckpointError(arguments.source + " holds no parameters of a model");
  const auto sink = make_sink(arguments, to, plan, std::move(small_files));
  const std::uint64_t bytes = checkpoint::convert(*source, *sink, plan, kBlockBytes, arguments.may_overflow);
  const std::string chosen =
      arguments.source == named ? "" : ", from " + arguments.source + ", the newest complete checkpoint of " + named;
  print_result("wrote " + arguments.target + " (" + checkpoint::kind_name(to) + "): " +
               counted(std::ssize(plan), "tensor") + ", " + format_bytes(static_cast<double>(bytes)) + chosen + "\n");
  return kExitDone;
}

}  // namespace

int run_convert(const std::vector<std::string>& args) {
  CLI::App app(kConvertHelp, "titan-train convert");
  app.footer(kFooter);
  ConvertArguments arguments;
  app.add_option("SOURCE", arguments.source,
                 "what to read; its format is seen from its files. Of a run, or a folder of its steps, the newest step")
      ->required();
  app.add_option("TARGET", arguments.target, "the folder or file to write")->required();
  app.add_option("--to", arguments.to,
                 "hf, dcp or torch (default: torch for *.pt and *.pth, else hf from dcp, and dcp from the others)")
      ->type_name("FORMAT");
  app.add_option("--export-dtype", arguments.dtype, "dtype of floating-point tensors; same: as they are stored")
      ->capture_default_str()
      ->check(CLI::IsMember({"same", "float32", "float16", "bfloat16"}));
  app.add_option("--config", arguments.config, "job.toml that describes the model ([model])")->type_name("FILE");
  app.add_option("--model-flavor", arguments.model_flavor, "size of the model, instead of a configuration")
      ->type_name("FLAVOR");
  app.add_option("--model-name", arguments.model_name, "model that the flavor is of")->capture_default_str();
  app.add_option("--tokenizer", arguments.tokenizer, "tokenizer to copy beside the weights of hf (default: the run's)")
      ->type_name("PATH");
  app.add_flag("--allow-overflow", arguments.may_overflow,
               "write infinities where the dtype cannot hold a number; without it that is an error");
  app.add_flag("--overwrite", arguments.overwrite, "replace TARGET when it exists, once the new one is complete");
  if (const auto code = parse_command(app, args)) return *code;
  log_to_stderr("titan-train convert");
  return convert(arguments);
}

}  // namespace titan
