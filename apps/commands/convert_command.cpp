#include "apps/commands/convert_command.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <utility>

#include "apps/common/print_result.h"
#include "apps/flags/convert_flags.h"
#include "apps/saved/convert_plan.h"
#include "apps/saved/model_source.h"
#include "apps/saved/run_state.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/hugging_face/generation_config.h"
#include "checkpoint/hugging_face/hugging_face_files.h"
#include "checkpoint/names/torchtitan_main.h"
#include "checkpoint/stream/merged_source.h"
#include "checkpoint/tools/convert.h"
#include "checkpoint/tools/inspect.h"
#include "config/keys/datasets.h"
#include "config/load.h"
#include "config/paths.h"
#include "data/conversations/chat_format.h"
#include "data/conversations/stop_tokens.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_export.h"
#include "models/common/lora/adapters.h"
#include "models/registry.h"

namespace titan {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointKind;
using checkpoint::Conversion;
using checkpoint::TensorInfo;

constexpr std::uint64_t kBlockBytes = 8 << 20;  // of one read

CheckpointKind parse_kind(const std::string& name) {
  for (const auto kind : {CheckpointKind::kDcp, CheckpointKind::kHuggingFace, CheckpointKind::kTorch})
    if (name == checkpoint::kind_name(kind)) return kind;
  throw ConfigError("titan-train convert: error: --to: expected hf, dcp or torch, found \"" + name + "\"");
}

CheckpointKind target_kind(const ConvertFlags& flags, CheckpointKind source) {
  if (!flags.to.empty()) return parse_kind(flags.to);
  const fs::path extension = fs::path(flags.target).extension();
  if (extension == ".pt" || extension == ".pth") return CheckpointKind::kTorch;
  return source == CheckpointKind::kDcp ? CheckpointKind::kHuggingFace : CheckpointKind::kDcp;
}

ModelShape shape_of(const config::Model& model, const config::Lora& lora, const std::string& origin) {
  ModelShape shape;
  shape.spec = models::make_train_spec(model, lora, /*seq_len=*/1);
  shape.base = models::make_train_spec(model, /*seq_len=*/1);
  shape.origin = origin;
  shape.lora = lora;
  return shape;
}

ModelShape shape_of_job(const config::JobConfig& job, const std::string& file) {
  ModelShape shape = shape_of(job.model, job.lora, file);
  shape.texts = {.tokenizer = job.model.hf_assets_path,
                 .chat_template = chat_template_of_run(file, job),
                 .has_chats = config::uses_chat_template(job),
                 .generation = config::initial_hugging_face_folder(job)};
  return shape;
}

ModelShape shape_from_config(const std::string& file) {
  config::CommandLine command_line;
  command_line.config_file = file;
  return shape_of_job(config::load_job_config(command_line).config, file);
}

// Reads the configuration as the run wrote it, without overrides from this process's environment.
ModelShape shape_of_run(const fs::path& file) {
  return shape_of_job(config::load_job_config_text(read_file(file), file.string()).config, file.string());
}

ModelShape shape_from_hugging_face(const fs::path& file) {
  const std::string json = read_file(file);
  const auto config = checkpoint::parse_hugging_face_config(json, file.string());
  ModelShape shape;
  shape.spec = models::make_train_spec_of_hugging_face(json, file.string());
  shape.tied_embeddings = config.tied_embeddings;
  shape.origin = file.string();
  const fs::path folder = file.parent_path();
  shape.texts.generation = folder;
  if (data::has_tokenizer(folder)) shape.texts.tokenizer = folder.string();
  return shape;
}

// Adds the folder's generation_config.json, if it has one.
void add_generation_config(const fs::path& folder, checkpoint::SmallFiles& files) {
  const fs::path file = folder / checkpoint::kGenerationConfig;
  if (fs::is_regular_file(file)) files[checkpoint::kGenerationConfig] = read_file(file);
}

// Returns the files that describe a Hugging Face model (config.json, generation_config.json, tokenizer) for a DCP
// folder converted from it, which has no configuration of a run.
checkpoint::SmallFiles description_beside(const ConvertFlags& flags) {
  const fs::path config = config_beside(flags.source);
  if (!fs::is_regular_file(config)) return {};
  auto files = data::tokenizer_files(config.parent_path());
  files["config.json"] = read_file(config);
  add_generation_config(config.parent_path(), files);
  return files;
}

std::optional<ModelShape> shape_that_was_asked_for(const ConvertFlags& flags) {
  if (!flags.config.empty()) return shape_from_config(flags.config);
  if (!flags.model_flavor.empty()) {
    config::Model model;
    model.name = flags.model_name;
    model.flavor = flags.model_flavor;
    return shape_of(model, {}, model.name + " " + model.flavor);
  }
  return std::nullopt;
}

// Returns the message for a source without a description of the model's shape.
std::string unknown_shape(const ConvertFlags& flags, CheckpointKind from) {
  return "titan-train convert: error: " + flags.source + " does not say how many heads the model has: there is no " +
         (from == CheckpointKind::kHuggingFace ? config_beside(flags.source).string()
                                               : "config.toml two folders above it") +
         ". Name a job that does (--config FILE), or its flavor (--model-flavor 8B)";
}

ModelShape find_shape(const ConvertFlags& flags, CheckpointKind from) {
  const auto asked_for = shape_that_was_asked_for(flags);
  const auto source = find_model_source(flags.source, from, asked_for.has_value());
  if (!source) throw ConfigError(unknown_shape(flags, from));
  if (source->kind == ModelSource::Kind::kNamed) {
    ModelShape named = *asked_for;
    if (fs::is_regular_file(fs::path(flags.source) / checkpoint::kGenerationConfig))
      named.texts.generation = flags.source;
    return named;
  }
  if (source->kind == ModelSource::Kind::kHuggingFace) return shape_from_hugging_face(source->file);
  ModelShape shape = shape_of_run(source->file);
  if (asked_for)
    check_same_model(*asked_for->spec, {"titan-train convert", asked_for->origin, "--config and --model-flavor"},
                     *shape.spec, source->file);
  return shape;
}

// A tokenizer and its files for an export.
struct FoundTokenizer {
  std::shared_ptr<const data::Tokenizer> tokenizer;  // null if there is none
  std::string path;
  HuggingFaceTokenizer exported = {};
};

FoundTokenizer read_tokenizer(const std::string& path, const std::optional<TrainSpec>& spec) {
  const auto tokenizer = data::make_tokenizer(path);
  if (spec) data::check_vocab_size(*tokenizer, spec->stats.vocab_size);
  return {tokenizer, path, data::export_tokenizer(path, *tokenizer)};
}

// Returns the run's tokenizer. If its folder moved or holds another tokenizer, warns and returns none.
FoundTokenizer tokenizer_of_run(const ConvertFlags& flags, const ModelShape& shape) {
  const std::string& path = shape.texts.tokenizer;
  std::string reason = "nothing says which tokenizer the model was trained with";
  try {
    if (!path.empty()) {
      FoundTokenizer found = read_tokenizer(path, shape.spec);
      const auto expected = checkpoint::tokenizer_of_run(flags.source);
      const std::string fingerprint = data::tokenizer_fingerprint(path);
      if (!expected || *expected == fingerprint) return found;
      reason = path + " is not the tokenizer that the model was trained with: it is " + fingerprint + ", and was " +
               *expected;
    }
  } catch (const std::exception& error) {
    reason = std::string(error.what()) + " (model.hf_assets_path in " + shape.origin + ")";
  }
  spdlog::warn("{} has no tokenizer: {}. Add it with --tokenizer PATH", flags.target, reason);
  return {};
}

// Adds the run's chat template to the files of an export. Returns the token that ends an answer; nullopt if there is
// none or its tokenizer is not there.
std::optional<std::int32_t> add_chats(const SavedTexts& texts, FoundTokenizer& found) {
  if (!texts.has_chats) return std::nullopt;
  try {
    if (texts.chat_template)
      data::add_chat_template(data::read_chat_template(*texts.chat_template), found.path, found.exported.files);
    if (!found.tokenizer) return std::nullopt;
    return data::end_of_turn(data::read_chat_format(found.path, *found.tokenizer, texts.chat_template),
                             *found.tokenizer);
  } catch (const DataError& error) {
    spdlog::warn(
        "the export has no chat template of the run, and no token that ends an answer: {}. Copy the template there as "
        "chat_template.jinja",
        error.what());
    return std::nullopt;
  }
}

// Adds which tokens end a text, and the other values of generation_config.json.
void add_generation(const fs::path& folder, const std::optional<std::int32_t>& turn_end, FoundTokenizer& found) {
  const auto defaults = checkpoint::kept_defaults(folder, "the export's generation_config.json has nothing");
  found.exported.generation_defaults = defaults.json;
  found.exported.stop_ids = defaults.stop_ids;
  if (!found.tokenizer) return;
  if (data::has_other_tokenizer(folder, found.path))
    found.exported.generation_defaults = checkpoint::without_token_ids(defaults.json);
  const auto others =
      data::stops_that_stay({defaults.stop_ids, !defaults.json.empty()}, folder, *found.tokenizer, found.path);
  found.exported.stop_ids = data::stop_tokens(*found.tokenizer, turn_end, others);
}

// Returns the small files beside the weights of a model that a configuration describes.
checkpoint::SmallFiles small_files_of(const ConvertFlags& flags, const ModelShape& shape, c10::ScalarType dtype) {
  FoundTokenizer found =
      flags.tokenizer.empty() ? tokenizer_of_run(flags, shape) : read_tokenizer(flags.tokenizer, shape.spec);
  const auto turn_end = add_chats(shape.texts, found);
  const ModelNaming& naming = shape.spec->naming;
  if (naming.adapter_config.empty()) add_generation(shape.texts.generation, turn_end, found);
  return checkpoint::describe_export(naming, dtype, found.exported);
}

// Returns the source's model with its adapters merged, and its shape in `shape`.
std::unique_ptr<checkpoint::TensorSource> merged(std::unique_ptr<checkpoint::TensorSource> source,
                                                 const ConvertFlags& flags, ModelShape& shape) {
  if (shape.lora.rank == 0)
    throw ConfigError("titan-train convert: error: --merge: " + shape.origin +
                      " has no lora.rank: it describes a "
                      "model without adapters; leave --merge out");
  const double scale = models::adapter_scale(shape.lora);
  shape.spec = shape.base;
  try {
    return checkpoint::merge_adapters(std::move(source), scale);
  } catch (const CheckpointError& error) {
    throw CheckpointError(flags.source + ": " + error.what());
  }
}

// Returns the small files for weights that are already in Hugging Face's format, copied from the source's folder.
checkpoint::SmallFiles small_files_beside(const ConvertFlags& flags, c10::ScalarType dtype) {
  const fs::path config = config_beside(flags.source);
  if (!flags.tokenizer.empty()) {
    FoundTokenizer found = read_tokenizer(flags.tokenizer, {});
    add_generation(config.parent_path(), std::nullopt, found);
    return checkpoint::describe_model(read_file(config), dtype, found.exported);
  }
  auto files = data::tokenizer_files(config.parent_path());
  files["config.json"] = checkpoint::with_dtype(read_file(config), dtype);
  add_generation_config(config.parent_path(), files);
  return files;
}

// Checks that weights that keep their names are complete. A model that cannot be built here is copied unchecked.
void check_complete(const ConvertFlags& flags, const std::vector<Conversion>& plan) {
  const fs::path config = config_beside(flags.source);
  if (!fs::is_directory(flags.source) || !fs::is_regular_file(config)) return;
  std::optional<ModelShape> shape;
  try {
    shape = shape_from_hugging_face(config);
  } catch (const Error& error) {
    spdlog::info("{} is copied without a look at which tensors it should have: {}", flags.source, error.what());
    return;
  }
  std::vector<TensorInfo> tensors;
  for (const Conversion& each : plan) tensors.push_back(each.target);
  plan_renamed(tensors, /*to_hub=*/false, *shape, "same");
}

std::unique_ptr<checkpoint::TensorSink> make_sink(const ConvertFlags& flags, CheckpointKind to,
                                                  const std::vector<Conversion>& plan,
                                                  checkpoint::SmallFiles small_files) {
  std::vector<TensorInfo> tensors;
  for (const Conversion& each : plan) tensors.push_back(each.target);
  if (to == CheckpointKind::kDcp)
    return checkpoint::make_dcp_sink(flags.target, std::move(tensors), std::move(small_files));
  if (to == CheckpointKind::kTorch) return checkpoint::make_torch_sink(flags.target, std::move(tensors));
  return checkpoint::make_safetensors_sink(flags.target, std::move(tensors), std::move(small_files));
}

void check_target(const ConvertFlags& flags, CheckpointKind to) {
  std::string extension = fs::path(flags.target).extension();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool is_file = extension == ".pt" || extension == ".pth";
  const bool is_other_file = extension == ".safetensors" || extension == ".bin" || extension == ".ckpt";
  if (to != CheckpointKind::kTorch && (is_file || is_other_file))
    throw ConfigError("titan-train convert: error: " + flags.target + " is the name of a file, and " +
                      checkpoint::kind_name(to) + " is a folder: name a folder" +
                      (is_file ? ", or leave --to out" : "; one file is written with --to torch, named *.pt"));
  std::error_code error;
  if (!flags.overwrite && fs::exists(flags.target, error))
    throw ConfigError("titan-train convert: error: " + flags.target +
                      " exists; choose another target, or replace it with --overwrite");
  if (fs::exists(flags.target, error) && fs::equivalent(flags.source, flags.target, error))
    throw ConfigError("titan-train convert: error: source and target are the same");
}

int convert(ConvertFlags flags) {
  const std::string named = std::exchange(flags.source, newest_checkpoint(flags.source).string());
  refuse_adapters_alone(flags.source, "titan-train convert");
  const CheckpointKind from = checkpoint::detect_kind(flags.source);
  const CheckpointKind to = target_kind(flags, from);
  check_target(flags, to);
  checkpoint::check_texts(flags.source, from);
  if (!flags.tokenizer.empty() && to != CheckpointKind::kHuggingFace)
    throw ConfigError("titan-train convert: error: --tokenizer goes with --to hf: other formats have no tokenizer");
  const bool to_main = flags.names == kNames[1];
  if (to_main && to == CheckpointKind::kHuggingFace)
    throw ConfigError(
        "titan-train convert: error: --names goes with --to dcp and --to torch: hf has Hugging Face's names");
  const bool to_hub = to == CheckpointKind::kHuggingFace, from_hub = from == CheckpointKind::kHuggingFace;
  auto source = checkpoint::open_source(flags.source, from);
  const bool from_main = !from_hub && source->use_own_names(flags.source);
  if (!from_hub) check_own_names(source->tensors(), flags.source);
  std::vector<Conversion> plan;
  checkpoint::SmallFiles small_files;
  if (flags.merge && from_hub)
    throw ConfigError("titan-train convert: error: --merge needs a checkpoint of a run with adapters; " + flags.source +
                      " is a folder in Hugging Face's format");
  ModelShape shape;
  if (to_hub != from_hub || flags.merge) shape = find_shape(flags, from);
  if (flags.merge) source = merged(std::move(source), flags, shape);
  if (to_hub != from_hub) {
    plan = plan_renamed(source->tensors(), to_hub, shape, flags.dtype);
    check_ties(*source, to_hub, shape);
    if (const std::string& misfit = shape.spec->naming.misfit; to_hub && !misfit.empty())
      throw CheckpointError(flags.source + " cannot be converted to Hugging Face's format: " + misfit);
    if (to_hub) small_files = small_files_of(flags, shape, dtype_of(plan));
    if (to == CheckpointKind::kDcp) small_files = description_beside(flags);
  } else {
    plan = plan_same_names(source->tensors(), flags.dtype);
    if (to_hub) check_complete(flags, plan);
    if (to_hub) small_files = small_files_beside(flags, dtype_of(plan));
  }
  if (plan.empty()) throw CheckpointError(flags.source + " holds no parameters of a model");
  if (to_main)
    for (Conversion& each : plan) each.target.name = checkpoint::to_main_names(each.target.name);
  const auto sink = make_sink(flags, to, plan, std::move(small_files));
  const std::uint64_t bytes = checkpoint::convert(*source, *sink, plan, kBlockBytes, flags.may_overflow);
  const std::string chosen =
      flags.source == named ? "" : ", from " + flags.source + ", the newest complete checkpoint of " + named;
  print_result("wrote " + flags.target + " (" + checkpoint::kind_name(to) +
               "): " + counted(std::ssize(plan), "tensor") + ", " + format_bytes(static_cast<double>(bytes)) + chosen +
               (from_main ? "; the source has the names of TorchTitan's main branch" : "") + "\n");
  return kExitDone;
}

}  // namespace

int run_convert(const std::vector<std::string>& args) {
  ConvertFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  log_to_stderr("titan-train convert");
  return convert(flags);
}

}  // namespace titan
