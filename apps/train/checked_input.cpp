#include "apps/train/checked_input.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/run_layout.h"
#include "checkpoint/hugging_face/generation_config.h"
#include "config/command_line/command_line.h"
#include "config/keys/datasets.h"
#include "config/paths.h"
#include "data/conversations/chat_format.h"
#include "data/conversations/stop_tokens.h"
#include "data/dataset_kinds.h"
#include "data/tokenizer/tokenizer_export.h"
#include "train/run_folder.h"

namespace titan {
namespace {

namespace fs = std::filesystem;

// The functions here throw errors that name keys, but not yet their locations (config::with_location()).

std::int64_t end_of_document(const CheckedInput& input) {
  if (const auto eos = input.tokenizer->eos_id()) return *eos;
  throw ConfigError(
      "model.args.attn_mask_type = \"block_causal\" separates documents by their EOS token, and the tokenizer in " +
          input.config.model.hf_assets_path +
          " has none; use another tokenizer, or model.args.attn_mask_type = \"causal\"",
      {"model.args.attn_mask_type"});
}

// Returns the tokenizer's files for an export. The run may end after weeks: if the folder is gone by then, the export
// lacks only these files.
HuggingFaceTokenizer files_for_export(const config::JobConfig& config, const data::Tokenizer& tokenizer) {
  try {
    return data::export_tokenizer(config.model.hf_assets_path, tokenizer);
  } catch (const std::exception& error) {
    spdlog::warn(
        "the export has no tokenizer, because its files cannot be read any more: {}. Copy them into the exported "
        "folder, or export a checkpoint with titan-train convert --tokenizer PATH",
        error.what());
    return {.bos_id = tokenizer.bos_id(), .eos_id = tokenizer.eos_id()};
  }
}

// Returns what an export says of the tokenizer. `turn_end`: the token that ends an answer, if there is one.
HuggingFaceTokenizer tokenizer_for_export(const config::JobConfig& config, const data::Tokenizer& tokenizer,
                                          const std::string& chat_template,
                                          const std::optional<std::int32_t>& turn_end) {
  HuggingFaceTokenizer out = files_for_export(config, tokenizer);
  if (!chat_template.empty()) data::add_chat_template(chat_template, config.model.hf_assets_path, out.files);
  if (config.lora.rank > 0) return out;  // an export of adapters does not say how to generate
  const fs::path initial = config::initial_hugging_face_folder(config);
  const fs::path path = config.model.hf_assets_path;
  const auto defaults = checkpoint::kept_defaults(initial, "the export's generation_config.json has nothing");
  const auto others = data::stops_that_stay({defaults.stop_ids, !defaults.json.empty()}, initial, tokenizer, path);
  out.stop_ids = data::stop_tokens(tokenizer, turn_end, others);
  out.generation_defaults =
      data::has_other_tokenizer(initial, path) ? checkpoint::without_token_ids(defaults.json) : defaults.json;
  return out;
}

// Encodes validation.prompts. Each must leave room for at least one more token.
Prompts encode_prompts(const CheckedInput& input, const std::optional<std::int32_t>& turn_end) {
  const auto fail = [](const std::string& prompt, const std::string& fault, std::vector<std::string> keys) {
    throw ConfigError("validation.prompts: \"" + prompt + "\" " + fault, std::move(keys));
  };
  const auto& tokenizer = input.tokenizer;
  Prompts prompts;
  for (const std::string& text : input.config.validation.prompts) {
    Prompt prompt{text, {}};
    tokenizer->encode_marked(text, {.bos = true, .eos = false}, prompt.ids);
    if (prompt.ids.empty())
      fail(text, "has no token, and the tokenizer no BOS to begin with; give some text", {"validation.prompts"});
    if (static_cast<std::int64_t>(prompt.ids.size()) >= input.config.training.seq_len)
      fail(text,
           "has " + std::to_string(prompt.ids.size()) + " tokens, which leaves no room for one more in " +
               "training.seq_len (" + std::to_string(input.config.training.seq_len) + "); shorten it",
           {"validation.prompts", "training.seq_len"});
    prompts.prompts.push_back(std::move(prompt));
  }
  prompts.stop_ids = data::stop_tokens(*tokenizer, turn_end, {});
  prompts.decode = [tokenizer](std::span<const std::int32_t> ids) { return tokenizer->decode_text(ids); };
  return prompts;
}

CheckedInput open_tokenizer(const CheckedConfig& checked) {
  CheckedInput input{checked, nullptr, {}, {}};
  const std::string& path = input.config.model.hf_assets_path;
  try {
    input.tokenizer = data::make_tokenizer(path);
    input.tokenizer_facts.fingerprint = data::tokenizer_fingerprint(path);
    data::check_vocab_size(*input.tokenizer, input.spec.stats.vocab_size);
  } catch (const DataError& error) {
    const config::Fault fault = config::below_key("model.hf_assets_path", error);
    throw DataError(fault.message, fault.keys);
  }
  if (input.spec.separates_documents) input.tokenizer_facts.document_end = end_of_document(input);
  return input;
}

void check_datasets(const CheckedInput& input) {
  for (const config::NamedDataset& dataset : config::named_datasets(input.config)) {
    try {
      data::check_dataset(dataset.kind, dataset.path, input.tokenizer_facts.fingerprint);
    } catch (const DataError& error) {
      const config::Fault fault = config::below_key(dataset.key, error);
      throw DataError(fault.message, fault.keys);
    }
  }
}

// Returns how conversations become text; nullopt for a run without them.
std::optional<data::ChatFormat> read_chat_format(const CheckedInput& input) {
  if (!config::uses_chat_template(input.config)) return std::nullopt;
  const data::ChatDataset chat = chat_dataset(input.config, input.tokenizer_facts.fingerprint);
  const std::string key = chat.chat_template ? "chat.chat_template" : "model.hf_assets_path";
  try {
    return data::read_chat_format(chat.tokenizer, *input.tokenizer, chat.chat_template);
  } catch (const Error& error) {
    std::string message = error.what();
    const fs::path kept = fs::path(input.config.job.dump_folder) / layout::kChatTemplateFile;
    std::error_code ignored;
    if (fs::exists(kept, ignored)) {
      message += ". The run keeps a copy of its template: set chat.chat_template to " + kept.string();
    } else if (!chat.chat_template) {
      message += ". Or set chat.chat_template to a file with a template, or to a folder that has one";
    }
    const config::Fault fault = config::below_key(key, DataError(message));
    throw DataError(fault.message, fault.keys);
  }
}

// Adds what depends on the chat template, if the run has one.
void complete(CheckedInput& input) {
  TokenizerFacts& facts = input.tokenizer_facts;
  std::optional<std::int32_t> turn_end;
  if (const auto format = read_chat_format(input)) {
    facts.chat_template = format->text;
    facts.chat_special_tokens = format->special_tokens.dump();
    turn_end = data::end_of_turn(*format, *input.tokenizer);
  }
  facts.hugging_face = [config = input.config, tokenizer = input.tokenizer, text = facts.chat_template, turn_end] {
    return tokenizer_for_export(config, *tokenizer, text, turn_end);
  };
  input.prompts = encode_prompts(input, turn_end);
}

// Holds the input if nothing is wrong, else at least one error.
struct FoundFiles {
  std::optional<CheckedInput> input;
  std::vector<config::Fault> errors;
};

FoundFiles find_files(const CheckedConfig& checked) {
  FoundFiles found;
  found.errors = config::find_wrong_paths(checked.config);
  const bool paths_are_there = found.errors.empty();
  try {
    found.input = open_tokenizer(checked);
    if (paths_are_there) check_datasets(*found.input);
    complete(*found.input);
  } catch (const Error& error) {
    found.errors.push_back({error.what(), error.keys()});
  }
  return found;
}

}  // namespace

data::ChatDataset chat_dataset(const config::JobConfig& config, const std::string& tokenizer_fingerprint) {
  data::ChatDataset out;
  out.tokenizer = config.model.hf_assets_path;
  out.tokenizer_fingerprint = tokenizer_fingerprint;
  if (config.chat.chat_template) out.chat_template = *config.chat.chat_template;
  out.too_long = config.chat.too_long;
  out.loss_weight = config.chat.loss_weight;
  return out;
}

std::vector<std::string> doubtful_data(const config::JobConfig& config) {
  std::vector<std::string> doubts;
  for (const config::NamedDataset& dataset : config::named_datasets(config))
    for (const std::string& doubt : data::doubtful_names(dataset.kind, dataset.path))
      doubts.push_back(dataset.key + ": " + doubt);
  return doubts;
}

CheckedInput load_tokenizer(const CheckedConfig& checked) {
  try {
    CheckedInput input = open_tokenizer(checked);
    complete(input);
    return input;
  } catch (const Error& error) {
    throw ConfigError(config::with_location(error, checked.origins));
  }
}

CheckedInput check_files(const CheckedConfig& checked) {
  FoundFiles found = find_files(checked);
  std::vector<std::string> errors;
  for (const config::Fault& fault : found.errors) errors.push_back(config::with_location(fault, checked.origins));
  config::throw_if_wrong(errors);
  return std::move(found.input).value();
}

std::vector<std::string> missing_files(const CheckedConfig& checked) {
  std::vector<std::string> messages;
  for (config::Fault& fault : find_files(checked).errors)
    if (!fault.keys.empty() && checked.origins.contains(fault.keys.front()))
      messages.push_back(std::move(fault.message));
  return messages;
}

void check_folder(const CheckedConfig& checked, bool overwrite) {
  try {
    train::check_run_folder(checked.config, overwrite);
  } catch (const ConfigError& error) {
    throw ConfigError(config::with_location(error, checked.origins));
  }
}

}  // namespace titan
