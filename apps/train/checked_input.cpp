#include "apps/train/checked_input.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "base/error.h"
#include "config/keys/datasets.h"
#include "config/load.h"
#include "config/paths.h"
#include "data/registry.h"
#include "data/tokenizer/tokenizer_export.h"
#include "models/registry.h"
#include "train/run_folder.h"

namespace titan {
namespace {

// The functions here throw messages that name a key and not its place.

std::int64_t end_of_document(const CheckedInput& input) {
  if (const auto eos = input.tokenizer->eos_id()) return *eos;
  throw ConfigError(
      "model.args.attn_mask_type = \"block_causal\" separates documents by their EOS token, and the tokenizer in " +
      input.config.model.hf_assets_path +
      " has none; use another tokenizer, or model.args.attn_mask_type = \"causal\"");
}

// Asked when the run ends, perhaps after weeks: a folder that is gone by then costs the tokenizer's files, not the
// model.
HuggingFaceTokenizer tokenizer_for_export(const std::string& path, const data::Tokenizer& tokenizer) {
  try {
    return data::export_tokenizer(path, tokenizer);
  } catch (const std::exception& error) {
    spdlog::warn(
        "the export has no tokenizer, because its files cannot be read any more: {}. Copy them into the exported "
        "folder, or export a checkpoint with titan-train convert --tokenizer PATH",
        error.what());
    return {.files = {}, .bos_id = tokenizer.bos_id(), .eos_id = tokenizer.eos_id()};
  }
}

// With the room for a token after each.
void encode_prompts(CheckedInput& input) {
  const auto fail = [](const std::string& prompt, const std::string& fault) {
    throw ConfigError("validation.prompts: \"" + prompt + "\" " + fault);
  };
  const auto& tokenizer = input.tokenizer;
  Prompts prompts;
  for (const std::string& text : input.config.validation.prompts) {
    Prompt prompt{text, {}};
    tokenizer->encode_marked(text, {.bos = true, .eos = false}, prompt.ids);
    if (prompt.ids.empty()) fail(text, "has no token, and the tokenizer no BOS to begin with; give some text");
    if (static_cast<std::int64_t>(prompt.ids.size()) >= input.config.training.seq_len)
      fail(text, "has " + std::to_string(prompt.ids.size()) + " tokens, which leaves no room for one more in " +
                     "training.seq_len (" + std::to_string(input.config.training.seq_len) + "); shorten it");
    prompts.prompts.push_back(std::move(prompt));
  }
  if (const auto eos = tokenizer->eos_id()) prompts.stop_ids = {*eos};
  prompts.decode = [tokenizer](std::span<const std::int32_t> ids) { return tokenizer->decode_text(ids); };
  input.prompts = std::move(prompts);
}

void open_tokenizer(CheckedInput& input) {
  const std::string& path = input.config.model.hf_assets_path;
  try {
    input.tokenizer = data::make_tokenizer(path);
    input.tokenizer_facts.fingerprint = data::tokenizer_fingerprint(path);
    input.tokenizer_facts.hugging_face = [path, tokenizer = input.tokenizer] {
      return tokenizer_for_export(path, *tokenizer);
    };
    data::check_vocab_size(*input.tokenizer, input.spec.stats.vocab_size);
  } catch (const DataError& error) {
    throw DataError("model.hf_assets_path: " + std::string(error.what()));
  }
  if (input.spec.separates_documents) input.tokenizer_facts.document_end = end_of_document(input);
  encode_prompts(input);
}

void check_datasets(const CheckedInput& input) {
  for (const config::NamedDataset& dataset : config::named_datasets(input.config)) {
    try {
      data::check_dataset(dataset.kind, dataset.path, input.tokenizer_facts.fingerprint);
    } catch (const DataError& error) {
      throw DataError(dataset.key + ": " + error.what());
    }
  }
}

std::vector<std::string> find_wrong_files(CheckedInput& input) {
  auto errors = config::find_wrong_paths(input.config);
  const bool paths_are_there = errors.empty();
  try {
    open_tokenizer(input);
    if (paths_are_there) check_datasets(input);
  } catch (const Error& error) {
    errors.emplace_back(error.what());
  }
  return errors;
}

}  // namespace

CheckedInput check_input(const config::CommandLine& command_line, std::int64_t world_size) {
  auto loaded = config::load_job_config(command_line, world_size);
  CheckedInput input;
  input.config = std::move(loaded.config);
  input.warnings = std::move(loaded.warnings);
  input.origins = std::move(loaded.origins);
  try {
    input.spec = models::make_train_spec(input.config.model, input.config.training.seq_len);
  } catch (const ConfigError& error) {
    throw ConfigError(config::at_its_place(error.what(), input.origins));
  }
  return input;
}

void load_tokenizer(CheckedInput& input) {
  try {
    open_tokenizer(input);
  } catch (const Error& error) {
    throw ConfigError(config::at_its_place(error.what(), input.origins));
  }
}

void check_files(CheckedInput& input) {
  auto errors = find_wrong_files(input);
  for (std::string& error : errors) error = config::at_its_place(error, input.origins);
  config::throw_if_wrong(errors);
}

std::vector<std::string> missing_files(CheckedInput& input) {
  auto errors = find_wrong_files(input);
  std::erase_if(errors, [&](const std::string& error) {
    const auto keys = config::keys_in(error);
    return keys.empty() || !input.origins.contains(keys.front());
  });
  return errors;
}

void check_folder(const CheckedInput& input, bool overwrite) {
  try {
    train::check_run_folder(input.config, overwrite);
  } catch (const ConfigError& error) {
    throw ConfigError(config::at_its_place(error.what(), input.origins));
  }
}

}  // namespace titan
