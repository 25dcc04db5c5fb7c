#include "apps/saved/trained_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "apps/saved/model_source.h"
#include "apps/saved/run_state.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/run_layout.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/hugging_face/generation_config.h"
#include "checkpoint/hugging_face/hugging_face.h"
#include "checkpoint/io/read_error.h"
#include "checkpoint/tools/convert.h"
#include "checkpoint/whole/load_weights.h"
#include "checkpoint/whole/weights_file.h"
#include "config/keys/datasets.h"
#include "config/load.h"
#include "config/paths.h"
#include "data/conversations/stop_tokens.h"
#include "data/tokenizer/tokenizer_export.h"
#include "distributed/config_dtype.h"
#include "distributed/device.h"
#include "models/common/check_shape.h"
#include "models/registry.h"
#include "train/build_model.h"
#include "train/setup.h"
#include "train/step/run_parameters.h"
#include "train/train_state.h"

namespace titan {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointKind;

// Returns the folder that holds the weights. Throws ConfigError.
fs::path find_checkpoint(const TrainedModelOptions& options) {
  const fs::path given = options.checkpoint;
  const std::string begin =
      options.command + ": error: " + options.checkpoint_flag + (options.checkpoint_flag.empty() ? "" : " ");
  const std::string expected =
      "; expected the folder of a run (job.dump_folder), its folder of checkpoints, one step folder, or a folder with "
      "*.safetensors and config.json, or a .pt or .pth file of torch.save";
  if (!fs::exists(given)) throw ConfigError(begin + given.string() + " does not exist" + expected);
  if (given.extension() == ".safetensors" && !fs::is_directory(given))
    throw ConfigError(begin + given.string() + " is one file of Hugging Face weights; name its folder");
  try {
    if (!fs::is_directory(given)) {
      checkpoint::check_weights_file(given);
      return given;
    }
    const fs::path found = newest_checkpoint(given);
    checkpoint::detect_kind(found);
    return found;
  } catch (const checkpoint::ReadError&) {
    throw;
  } catch (const CheckpointError& error) {
    throw ConfigError(begin + error.what() + expected);
  }
}

// Facts about the model before its weights are read.
struct Description {
  TrainSpec spec;
  std::int64_t context = 0;
  fs::path tokenizer;                             // "" if not known
  std::optional<std::string> chat_template = {};  // see TrainedModel
  bool has_chats = false;                         // a run that put conversations into words
  fs::path initial = {};                          // the Hugging Face folder that it started from; "" for none
};

std::int64_t pick_context(const TrainedModelOptions& options, std::int64_t trained, std::int64_t longest) {
  const std::int64_t context = options.context.value_or(trained);
  if (context <= longest) return context;
  throw ConfigError(options.command + ": error: --context " + std::to_string(context) + ": expected at most " +
                    std::to_string(longest) + ", the longest sequence of this model");
}

// Adds what the configuration of a run, in `file`, says of its texts.
void add_run(const config::JobConfig& config, const fs::path& file, Description& out) {
  out.tokenizer = config.model.hf_assets_path;
  out.chat_template = chat_template_of_run(file, config);
  out.has_chats = config::uses_chat_template(config);
  out.initial = config::initial_hugging_face_folder(config);
}

Description describe(const config::JobConfig& config, const fs::path& file, const TrainedModelOptions& options) {
  const std::int64_t trained = config.training.seq_len;
  Description out;
  out.spec = models::make_train_spec(config.model, config.lora, trained);
  out.context = pick_context(options, trained, std::max(out.spec.max_seq_len, trained));
  if (out.context != trained) out.spec = models::make_train_spec(config.model, config.lora, out.context);
  add_run(config, file, out);
  return out;
}

config::JobConfig saved_config(const fs::path& file) {
  return config::load_job_config_text(read_file(file), file.string()).config;
}

Description describe_hugging_face(const fs::path& folder, const TrainedModelOptions& options) {
  const fs::path file = folder / "config.json";
  const std::string json = read_file(file);
  Description out;
  const std::int64_t longest = models::make_train_spec_of_hugging_face(json, file.string()).max_seq_len;
  out.context = pick_context(options, longest, longest);
  out.spec = models::make_train_spec_of_hugging_face(json, file.string(), out.context);
  const fs::path run = layout::config_of_step(folder);
  if (data::has_tokenizer(folder)) {
    out.tokenizer = folder;
  } else if (fs::is_regular_file(run)) {
    add_run(saved_config(run), run, out);
  }
  return out;
}

std::optional<Description> description_that_was_asked_for(const TrainedModelOptions& options) {
  if (options.config.empty()) return std::nullopt;
  config::CommandLine command_line;
  command_line.config_file = options.config;
  return describe(config::load_job_config(command_line).config, options.config, options);
}

Description describe(const fs::path& folder, CheckpointKind kind, const TrainedModelOptions& options) {
  auto asked_for = description_that_was_asked_for(options);
  const auto source = find_model_source(folder, kind, asked_for.has_value());
  if (!source)
    throw ConfigError(options.command + ": error: " + folder.string() +
                      " does not say which model it holds (there is no " +
                      (kind == CheckpointKind::kDcp ? layout::kSavedConfigFile : "config.json") +
                      " in it): name a configuration with --config FILE");
  if (source->kind == ModelSource::Kind::kNamed) return std::move(*asked_for);
  if (source->kind == ModelSource::Kind::kHuggingFace) return describe_hugging_face(folder, options);
  Description saved = describe(saved_config(source->file), source->file, options);
  if (!asked_for) return saved;
  check_same_model(asked_for->spec, {options.command, "--config " + options.config, "--config"}, saved.spec,
                   source->file);
  if (!asked_for->chat_template) asked_for->chat_template = saved.chat_template;
  return std::move(*asked_for);
}

fs::path path_of_tokenizer(const Description& description, const TrainedModelOptions& options) {
  return options.tokenizer.empty() ? description.tokenizer : fs::path(options.tokenizer);
}

std::shared_ptr<const data::Tokenizer> open_tokenizer(const Description& description,
                                                      const TrainedModelOptions& options) {
  const fs::path path = path_of_tokenizer(description, options);
  if (path.empty())
    throw ConfigError(options.command +
                      ": error: the checkpoint comes without a tokenizer: name the one that it was trained with, "
                      "--tokenizer FOLDER (with tokenizer.json or tokenizer.model)");
  try {
    auto tokenizer = data::make_tokenizer(path);
    data::check_vocab_size(*tokenizer, description.spec.stats.vocab_size);
    return tokenizer;
  } catch (const DataError& error) {
    const bool was_named = !options.tokenizer.empty();
    throw DataError(options.command + ": error: " + (was_named ? "--tokenizer: " : "model.hf_assets_path: ") +
                    error.what() + (was_named ? "" : " Or name another with --tokenizer FOLDER."));
  }
}

// Returns the tokens that end a text. A folder's own come first: an export of a run names what its run does.
std::vector<std::int64_t> pick_stops(const fs::path& folder, const Description& description,
                                     const TrainedModel& model) {
  const data::Tokenizer& tokenizer = *model.tokenizer;
  if (const auto named = checkpoint::read_stop_tokens(folder); !named.empty())
    return data::stop_tokens(tokenizer, std::nullopt, named);
  std::optional<std::int32_t> turn_end;
  try {
    if (description.has_chats)
      turn_end =
          data::end_of_turn(data::read_chat_format(model.tokenizer_path, tokenizer, model.chat_template), tokenizer);
  } catch (const DataError&) {  // without its template, a run of before these were kept continues text all the same
  }
  const fs::path& initial = description.initial;
  const auto others = checkpoint::kept_defaults(initial, "texts do not end with the stop tokens");
  const data::FolderStops stops = {others.stop_ids, !others.json.empty()};
  return data::stop_tokens(tokenizer, turn_end, data::stops_that_stay(stops, initial, tokenizer, model.tokenizer_path));
}

c10::ScalarType pick_dtype(const std::string& wanted, const checkpoint::TensorSource& source, at::Device device) {
  if (wanted != "auto") return dist::dtype_of(wanted);
  const auto is_bfloat16 = [](const auto& tensor) { return tensor.dtype == c10::ScalarType::BFloat16; };
  const bool was_saved_so = std::ranges::any_of(source.tensors(), [&](const auto& tensor) {
    return checkpoint::is_model_key(tensor.name) && is_bfloat16(tensor);
  });
  return was_saved_so || !device.is_cpu() ? c10::ScalarType::BFloat16 : c10::ScalarType::Float;
}

void load_weights(LanguageModel& model, const TrainSpec& spec, const fs::path& folder, CheckpointKind kind,
                  dist::ProcessGroup& group) {
  const auto items = train::weight_items(train::RunParameters(model));
  checkpoint::GroupRanks ranks(group);
  if (kind == CheckpointKind::kHuggingFace) {
    checkpoint::load_hugging_face(folder, items, {spec.naming, {}}, ranks, /*all_weights=*/true);
  } else if (kind == CheckpointKind::kTorch) {
    checkpoint::load_weights(checkpoint::torch_file(folder), items, ranks);
  } else {
    checkpoint::load(folder, items, ranks, {.all_weights = true});
  }
}

std::int64_t end_of_document(const data::Tokenizer& tokenizer, const std::string& command) {
  if (const auto eos = tokenizer.eos_id()) return *eos;
  throw ConfigError(command +
                    ": error: the model separates documents by their EOS token (model.args.attn_mask_type = "
                    "\"block_causal\"), and the tokenizer has none: name another with --tokenizer FOLDER");
}

// The ranks over which a model is split.
struct Split {
  std::shared_ptr<dist::Meshes> meshes;  // null: the model is whole
  config::JobConfig job;                 // the keys that say how it is split
};

// Returns the mesh and the keys for a model in `dtype`. Collective. Throws ConfigError naming --tensor-parallel.
Split split_over(dist::World& world, const TrainedModelOptions& options, const ModelStats& stats,
                 c10::ScalarType dtype) {
  const std::int64_t degree = options.tensor_parallel;
  const std::string begin = options.command + ": error: --tensor-parallel " + std::to_string(degree);
  if (world.size() % degree != 0)
    throw ConfigError(begin + ": expected a number that divides the " + std::to_string(world.size()) +
                      " ranks; start as many with --nproc, or a multiple");
  if (world.size() == 1) return {};
  Split out;
  out.job.parallelism.tensor_parallel_degree = degree;
  out.job.training.mixed_precision_param = dtype == c10::ScalarType::BFloat16 ? "bfloat16" : "float32";
  try {
    models::check_mesh(stats, out.job.parallelism);
  } catch (const ConfigError& error) {
    throw ConfigError(begin + ": " + error.what());
  }
  const auto dims = dist::ParallelDims::from_config(out.job.parallelism, world.size());
  out.meshes = std::make_shared<dist::Meshes>(dist::Meshes::build(world, dims));
  return out;
}

// Applies the passes of the spec that a forward needs. A model whose parameters are split by tensor parallelism alone
// is not sharded besides.
void apply_passes(LanguageModel& model, const TrainSpec& spec, const Split& split) {
  for (const ModelPass& pass : spec.passes)
    if (pass.name != "recompute" && (pass.name != "shard" || split.meshes->fsdp.size() > 1))
      pass.apply(model, {*split.meshes, split.job, /*any_length=*/true});
}

TrainedModel load(const TrainedModelOptions& options, at::Device device, dist::ProcessGroup& group,
                  dist::World* world) {
  const fs::path folder = find_checkpoint(options);
  refuse_adapters_alone(folder, options.command);
  const CheckpointKind kind = checkpoint::detect_kind(folder);
  checkpoint::check_texts(folder, kind);
  const Description description = describe(folder, kind, options);
  TrainedModel out;
  out.folder = folder.string();
  out.tokenizer = open_tokenizer(description, options);
  out.tokenizer_path = path_of_tokenizer(description, options).string();
  out.chat_template = description.chat_template;
  out.context = description.context;
  out.vocab_size = description.spec.stats.vocab_size;
  out.device = device;
  if (options.continues_texts) out.stop_ids = pick_stops(folder, description, out);
  std::optional<std::int64_t> document_end;
  if (description.spec.separates_documents) document_end = end_of_document(*out.tokenizer, options.command);
  const auto source = checkpoint::open_source(folder, kind);
  out.dtype = pick_dtype(options.dtype, *source, out.device);
  const at::NoGradGuard no_grad;
  const Split split = world ? split_over(*world, options, description.spec.stats, out.dtype) : Split();
  out.model = description.spec.build_model(document_end);
  out.meshes = split.meshes;
  if (split.meshes) apply_passes(*out.model, description.spec, split);
  train::materialize(*out.model, out.device, out.dtype, out.dtype);
  load_weights(*out.model, description.spec, folder, kind, group);
  out.num_parameters = description.spec.stats.num_parameters;
  out.num_parameters_here = train::RunParameters(*out.model).local_numel();
  out.model->train(false);
  return out;
}

}  // namespace

c10::DeviceType device_type_of(const TrainedModelOptions& options) {
  if (options.device == "cpu") return c10::DeviceType::CPU;
  const std::string missing = dist::load_accelerator_module();
  if (missing.empty()) return dist::accelerator()->type;
  if (options.device == "cuda") throw ConfigError(options.command + ": error: --device cuda, but " + missing);
  return c10::DeviceType::CPU;
}

TrainedModel load_trained_model(const TrainedModelOptions& options) {
  const auto type = device_type_of(options);
  const at::Device device = type == c10::DeviceType::CPU ? at::Device(at::kCPU) : at::Device(type, 0);
  if (!device.is_cpu()) dist::accelerator()->set_device(0);
  return load_whole_model(options, device);
}

TrainedModel load_whole_model(const TrainedModelOptions& options, at::Device device) {
  dist::ProcessGroup alone("model", {0}, 0, nullptr, nullptr);
  return load(options, device, alone, nullptr);
}

TrainedModel load_trained_model(const TrainedModelOptions& options, dist::World& world) {
  return load(options, world.device(), world.group(), &world);
}

}  // namespace titan
