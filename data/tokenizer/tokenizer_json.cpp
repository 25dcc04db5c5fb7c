#include "data/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/fs.h"
#include "base/json_error.h"
#include "base/limits/parse_json.h"

namespace titan::data {
namespace {

using Json = nlohmann::json;
// Used for tokenizer_config.json, where the order of added_tokens_decoder counts; too slow for a vocabulary.
using OrderedJson = nlohmann::ordered_json;

// The built-in pattern of the package's ByteLevel pre-tokenizer.
constexpr char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const std::string kOnlyBpe = "only byte-level BPE (as Llama 3, Qwen and GPT-2 have it) is supported";

template <typename J>
std::string shortened(const J& value) {
  std::string text = value.dump(-1, ' ', false, J::error_handler_t::replace);
  return text.size() > 120 ? text.substr(0, 117) + "..." : text;
}

// Throws DataError for a key with an unsupported value.
[[noreturn]] void refuse(const std::string& key, const Json& value, const std::string& reason) {
  throw DataError(key + " = " + shortened(value) + " is not supported: " + reason);
}

template <typename J>
const J& at(const J& object, const std::string& name, const std::string& where) {
  if (!object.is_object() || !object.contains(name)) throw DataError(where + " has no \"" + name + "\"");
  return object.at(name);
}

// Returns null if the key is absent or null.
template <typename J>
const J* find(const J& object, const std::string& name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

template <typename T, typename J>
T get(const J& object, const std::string& name, const std::string& where) {
  try {
    return at(object, name, where).template get<T>();
  } catch (const nlohmann::json::exception&) {
    throw DataError(where + "." + name + " = " + shortened(object.at(name)) + " is of another type than expected");
  }
}

// Returns the id of a token.
template <typename J>
std::int32_t id_of(const J& json, const std::string& what) {
  const auto id = integer_of(json);
  if (!id || *id < 0 || *id > INT32_MAX) throw DataError(what + " = " + shortened(json) + " is not a token id");
  return static_cast<std::int32_t>(*id);
}

template <typename T, typename J>
T get_or(const J& object, const std::string& name, const std::string& where, T fallback) {
  return find(object, name) ? get<T>(object, name, where) : fallback;
}

// Throws for keys that no version of the format had when this was written. `where` is "" for the top level of the file.
void refuse_unknown_keys(const Json& object, const std::string& where, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) == known.end())
      refuse(where + (where.empty() ? "" : ".") + key, value, "its meaning is not known");
  }
}

std::string type_of(const Json& object, const std::string& where) { return get<std::string>(object, "type", where); }

void read_merges(const Json& merges, BpeSpec& spec) {
  if (!merges.is_array()) throw DataError("model.merges is not an array");
  for (const Json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      spec.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t space = text.find(' ');
    if (text.starts_with("#version")) continue;  // left in by a conversion from merges.txt
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      throw DataError("model.merges has " + shortened(merge) + "; expected \"left right\" or [\"left\", \"right\"]");
    }
    spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
}

BpeSpec read_model(const Json& model) {
  // Old files have no type; the package then takes the model that fits, and merges fit only BPE.
  const std::string type = find(model, "type") ? type_of(model, "model") : model.contains("merges") ? "BPE" : "unnamed";
  if (type != "BPE") throw DataError("model.type = \"" + type + "\" is not supported: " + kOnlyBpe);
  refuse_unknown_keys(model, "model",
                      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                       "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const Json* dropout = find(model, "dropout"); dropout && *dropout != 0.0) {
    refuse("model.dropout", *dropout, "ids would be random");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const Json* affix = find(model, key); affix && *affix != "")
      refuse(std::string("model.") + key, *affix, kOnlyBpe);
  }
  if (get_or(model, "byte_fallback", "model", false)) {
    refuse("model.byte_fallback", Json(true), "it belongs to SentencePiece tokenizers; use their tokenizer.model");
  }
  BpeSpec spec;
  spec.ignore_merges = get_or(model, "ignore_merges", "model", false);
  if (find(model, "unk_token")) spec.unk_token = get<std::string>(model, "unk_token", "model");
  const Json& vocab = at(model, "vocab", "model");
  if (!vocab.is_object() || vocab.empty()) throw DataError("model.vocab is not an object, or empty");
  spec.vocab.reserve(vocab.size());
  for (const auto& [token, id] : vocab.items()) {
    spec.vocab.insert_or_assign(token, id_of(id, "model.vocab[\"" + token + "\"]"));
  }
  read_merges(at(model, "merges", "model"), spec);
  return spec;
}

bool read_normalizer(const Json& normalizer, const std::string& where) {
  const std::string type = type_of(normalizer, where);
  if (type == "NFC") return true;
  if (type != "Sequence") {
    throw DataError(where + ".type = \"" + type + "\" is not supported: known are NFC and a Sequence of it");
  }
  bool nfc = false;
  for (const Json& step : at(normalizer, "normalizers", where)) nfc |= read_normalizer(step, where + ".normalizers");
  return nfc;
}

SplitStep read_split(const Json& step, const std::string& where) {
  refuse_unknown_keys(step, where, {"type", "pattern", "behavior", "invert"});
  const Json& pattern = at(step, "pattern", where);
  if (!pattern.contains("Regex")) refuse(where + ".pattern", pattern, "only {\"Regex\": ...} is");
  const auto behavior = get<std::string>(step, "behavior", where);
  const bool invert = get_or(step, "invert", where, false);
  if (behavior == "Isolated") return {get<std::string>(pattern, "Regex", where + ".pattern"), false};
  if (behavior == "Removed" && invert) return {get<std::string>(pattern, "Regex", where + ".pattern"), true};
  refuse(where + ".behavior", Json(behavior), "known are Isolated, and Removed with invert");
}

// Appends to `spec`. Returns true after a ByteLevel step, which must be the last.
bool read_pre_tokenizer(const Json& step, const std::string& where, TokenizerSpec& spec) {
  const std::string type = type_of(step, where);
  if (type == "Sequence") {
    bool done = false;
    for (const Json& inner : at(step, "pretokenizers", where)) {
      if (done) throw DataError(where + " has steps after ByteLevel, which is not supported");
      done = read_pre_tokenizer(inner, where + ".pretokenizers", spec);
    }
    return done;
  }
  if (type == "Split") {
    spec.splits.push_back(read_split(step, where));
    return false;
  }
  if (type != "ByteLevel") {
    throw DataError(where + ".type = \"" + type + "\" is not supported: known are Sequence, Split and ByteLevel");
  }
  refuse_unknown_keys(step, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  const bool prefix = get<bool>(step, "add_prefix_space", where);
  if (prefix && !spec.splits.empty()) {
    refuse(where + ".add_prefix_space", Json(true), "after a Split every piece would get a space");
  }
  spec.add_prefix_space = prefix;
  if (get_or(step, "use_regex", where, true)) spec.splits.push_back({kGpt2Pattern, false});
  return true;
}

// Adds the ids that a template puts before and after the text, around those of earlier processors.
void read_template(const Json& processor, const std::string& where, TokenizerSpec& spec) {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
  bool text_seen = false;
  for (const Json& item : at(processor, "single", where)) {
    if (item.contains("Sequence")) {
      if (text_seen || get<std::string>(item["Sequence"], "id", where + ".single") != "A") {
        refuse(where + ".single", processor["single"], "the text must be in it once, as A");
      }
      text_seen = true;
      continue;
    }
    const auto name = get<std::string>(at(item, "SpecialToken", where + ".single"), "id", where + ".single");
    const Json& token = at(at(processor, "special_tokens", where), name, where + ".special_tokens");
    for (const Json& id : at(token, "ids", where + ".special_tokens"))
      (text_seen ? after : before).push_back(id_of(id, where + ".special_tokens.ids"));
  }
  if (!text_seen) refuse(where + ".single", processor["single"], "the text is not in it");
  spec.prefix_ids.insert(spec.prefix_ids.begin(), before.begin(), before.end());
  spec.suffix_ids.insert(spec.suffix_ids.end(), after.begin(), after.end());
}

void read_post_processor(const Json& processor, const std::string& where, TokenizerSpec& spec) {
  const std::string type = type_of(processor, where);
  if (type == "ByteLevel") return;  // affects offsets only
  if (type == "TemplateProcessing") return read_template(processor, where, spec);
  if (type != "Sequence") {
    throw DataError(where + ".type = \"" + type +
                    "\" is not supported: known are Sequence, ByteLevel and TemplateProcessing");
  }
  for (const Json& inner : at(processor, "processors", where)) read_post_processor(inner, where + ".processors", spec);
}

void check_decoder(const Json* decoder) {
  if (!decoder) throw DataError("it has no decoder: tokens would be joined by spaces. " + kOnlyBpe);
  if (const std::string type = type_of(*decoder, "decoder"); type != "ByteLevel") {
    throw DataError("decoder.type = \"" + type + "\" is not supported: " + kOnlyBpe);
  }
}

void read_added_token(const Json& token, TokenizerSpec& spec) {
  const std::string where = "added_tokens";
  spec.added_ids.push_back(id_of(at(token, "id", where), where + ".id"));
  spec.added_tokens.push_back({.content = get<std::string>(token, "content", where),
                               .single_word = get<bool>(token, "single_word", where),
                               .lstrip = get<bool>(token, "lstrip", where),
                               .rstrip = get<bool>(token, "rstrip", where),
                               .normalized = get<bool>(token, "normalized", where),
                               .special = get<bool>(token, "special", where)});
}

TokenizerSpec read_spec(const Json& root) {
  if (!root.is_object()) throw DataError("it is not a JSON object");
  refuse_unknown_keys(root, "",
                      {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                       "post_processor", "decoder", "model"});
  if (const Json* version = find(root, "version"); version && *version != "1.0") refuse("version", *version, "1.0 is");
  for (const char* key : {"truncation", "padding"}) {
    if (const Json* value = find(root, key)) refuse(key, *value, "documents must be whole; set it to null");
  }
  TokenizerSpec spec;
  spec.model = read_model(at(root, "model", "it"));
  if (const Json* normalizer = find(root, "normalizer")) spec.nfc = read_normalizer(*normalizer, "normalizer");
  const Json* pre_tokenizer = find(root, "pre_tokenizer");
  if (!pre_tokenizer || !read_pre_tokenizer(*pre_tokenizer, "pre_tokenizer", spec)) {
    throw DataError("pre_tokenizer has no ByteLevel step: " + kOnlyBpe);
  }
  if (const Json* processor = find(root, "post_processor")) read_post_processor(*processor, "post_processor", spec);
  check_decoder(find(root, "decoder"));
  if (const Json* tokens = find(root, "added_tokens")) {
    for (const Json& token : *tokens) read_added_token(token, spec);
  }
  return spec;
}

// Parses a JSON file. Throws DataError that names the file.
template <typename J>
J parse(const std::filesystem::path& file) {
  try {
    return parse_json<J>(read_file(file));
  } catch (const nlohmann::json::exception& error) {
    const JsonError problem = explain_json_error(error.what());
    const std::string place = ":" + std::to_string(problem.line) + ":" + std::to_string(problem.column);
    throw DataError(file.string() + (problem.line > 0 ? place : "") + ": not JSON: " + problem.reason);
  }
}

// Returns the text of "text" or {"content": "text", ...}; nullopt for null.
std::optional<std::string> token_text(const OrderedJson& config, const std::string& key) {
  const OrderedJson* token = find(config, key);
  if (!token) return std::nullopt;
  if (token->is_string()) return token->get<std::string>();
  if (token->is_object() && token->contains("content")) return get<std::string>(*token, "content", key);
  throw DataError(key + " = " + shortened(*token) + " is neither a text nor an object with \"content\"");
}

AddedToken special_token(const std::string& content, const OrderedJson& options) {
  if (!options.is_object()) return {.content = content, .normalized = false, .special = true};
  return {.content = content,
          .single_word = get_or(options, "single_word", content, false),
          .lstrip = get_or(options, "lstrip", content, false),
          .rstrip = get_or(options, "rstrip", content, false),
          .normalized = get_or(options, "normalized", content, true),
          .special = true};
}

TokenizerConfig read_config(const OrderedJson& root) {
  if (!root.is_object()) throw DataError("it is not a JSON object");
  TokenizerConfig config;
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"}) {
    if (const auto text = token_text(root, key)) config.special_tokens.push_back(special_token(*text, root[key]));
  }
  if (const OrderedJson* decoder = find(root, "added_tokens_decoder")) {
    for (const auto& [id, options] : decoder->items()) {
      if (const auto content = options.is_object() ? token_text(*decoder, id) : std::nullopt) {
        config.special_tokens.push_back(special_token(*content, options));
      }
    }
  }
  config.bos_token = token_text(root, "bos_token");
  config.eos_token = token_text(root, "eos_token");
  if (config.eos_token == config.bos_token) config.eos_token = std::nullopt;
  return config;
}

using AddedOfFile = std::map<std::int64_t, std::string>;  // id -> content

// Reads {"added_tokens": [{"id": 5, "content": "text"}]} of tokenizer.json.
AddedOfFile added_in_tokenizer_json(const OrderedJson& root) {
  AddedOfFile added;
  const OrderedJson* tokens = find(root, "added_tokens");
  for (const OrderedJson& token : tokens ? *tokens : OrderedJson::array())
    added.emplace(id_of(at(token, "id", "added_tokens"), "added_tokens.id"),
                  get<std::string>(token, "content", "added_tokens"));
  return added;
}

// Reads {"text": 5} of added_tokens.json.
AddedOfFile added_in_added_tokens_json(const OrderedJson& root) {
  AddedOfFile added;
  for (const auto& [content, id] : root.items()) added.emplace(id_of(id, content), content);
  return added;
}

// Reads {"added_tokens_decoder": {"5": {"content": "text"}}} of tokenizer_config.json.
AddedOfFile added_in_tokenizer_config(const OrderedJson& root) {
  const std::string key = "added_tokens_decoder";
  AddedOfFile added;
  const OrderedJson* decoder = find(root, key);
  if (!decoder) return added;
  for (const auto& [name, token] : decoder->items()) {
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc() || end != name.data() + name.size())
      throw DataError(key + " has the key \"" + name + "\", which is not a token id");
    added.emplace(id, get<std::string>(token, "content", key));
  }
  return added;
}

}  // namespace

TokenizerSpec read_tokenizer_json(const std::filesystem::path& file) {
  const Json root = parse<Json>(file);
  try {
    return read_spec(root);
  } catch (const DataError& error) {
    throw DataError(file.string() + ": " + error.what());
  }
}

bool is_sentencepiece_json(const std::filesystem::path& file) {
  try {
    const auto root = parse<Json>(file);
    const Json* model = root.is_object() ? find(root, "model") : nullptr;
    return model && model->is_object() && model->value("byte_fallback", Json()) == true;
  } catch (const DataError&) {
    return false;
  }
}

TokenizerConfig read_tokenizer_config(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {};
  const auto root = parse<OrderedJson>(file);
  try {
    return read_config(root);
  } catch (const DataError& error) {
    throw DataError(file.string() + ": " + error.what());
  }
}

bool prefixes_each_text(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path json = folder / "tokenizer.json", config = folder / "tokenizer_config.json";
  if (std::filesystem::exists(json, ignored)) {
    const auto root = parse<OrderedJson>(json);
    const OrderedJson splits = root.is_object() ? root.value("pre_tokenizer", OrderedJson()) : OrderedJson();
    const auto is_first = [](const OrderedJson& step) {
      return step.is_object() && step.value("type", "") == "Metaspace" && step.value("prepend_scheme", "") == "first";
    };
    if (is_first(splits)) return false;
    const OrderedJson steps = splits.is_object() ? splits.value("pretokenizers", OrderedJson()) : OrderedJson();
    return std::ranges::none_of(steps, is_first);
  }
  if (!std::filesystem::exists(config, ignored)) return true;
  const auto root = parse<OrderedJson>(config);
  const OrderedJson legacy = root.is_object() ? root.value("legacy", OrderedJson()) : OrderedJson();
  return !(legacy.is_boolean() && !legacy.get<bool>());
}

std::vector<NumberedToken> read_added_tokens(const std::filesystem::path& folder) {
  const std::pair<const char*, AddedOfFile (*)(const OrderedJson&)> readers[] = {
      {"tokenizer.json", added_in_tokenizer_json},
      {"added_tokens.json", added_in_added_tokens_json},
      {"tokenizer_config.json", added_in_tokenizer_config}};
  std::vector<NumberedToken> tokens;
  for (const auto& [name, read] : readers) {
    const std::filesystem::path file = folder / name;
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    const auto root = parse<OrderedJson>(file);
    try {
      if (!root.is_object()) throw DataError("it is not a JSON object");
      for (auto& [id, content] : read(root)) tokens.push_back({file, content, id});
    } catch (const DataError& error) {
      throw DataError(file.string() + ": " + error.what());
    }
  }
  return tokens;
}

}  // namespace titan::data
