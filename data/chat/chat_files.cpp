#include "data/chat/chat_files.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/json_error.h"
#include "base/limits/parse_json.h"

namespace titan::data {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Returns nullopt if there is no such file.
std::optional<std::string> read_text(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return std::nullopt;
  return read_file(file);
}

// Returns null if there is no such file.
Json read_object(const fs::path& file) {
  const std::optional<std::string> text = read_text(file);
  if (!text) return nullptr;
  try {
    Json object = parse_json<Json>(*text);
    if (!object.is_object()) throw DataError(file.string() + ": it is not a JSON object");
    return object;
  } catch (const nlohmann::json::exception& error) {
    throw DataError(file.string() + ": " + json_error_text(error.what()));
  }
}

// Adds the value of a `chat_template` key: text, or a list of named ones.
void add_templates(const Json& value, const fs::path& file, ChatFiles& out) {
  const std::string name = file.string() + " (chat_template)";
  if (value.is_string()) {
    out.templates["default"] = {value.get<std::string>(), name};
    return;
  }
  const std::string expected = name + ": expected text, or a list of {\"name\": ..., \"template\": ...}";
  if (!value.is_array()) throw DataError(expected + "; found " + value.type_name());
  for (const Json& entry : value) {
    const auto has_text = [&](const char* key) {
      return entry.is_object() && entry.contains(key) && entry[key].is_string();
    };
    if (!has_text("name") || !has_text("template")) throw DataError(expected);
    const auto key = entry["name"].get<std::string>();
    out.templates[key] = {entry["template"].get<std::string>(), file.string() + " (chat_template \"" + key + "\")"};
  }
}

void read_template_files(ChatFiles& out) {
  const fs::path main = out.folder / "chat_template.jinja";
  if (auto text = read_text(main)) out.templates["default"] = {*std::move(text), main.string()};
  std::error_code error;
  std::vector<fs::path> more;
  for (const auto& entry : fs::directory_iterator(out.folder / "additional_chat_templates", error))
    if (entry.path().extension() == ".jinja") more.push_back(entry.path());
  std::ranges::sort(more);
  for (const fs::path& file : more)
    if (auto text = read_text(file)) out.templates[file.stem().string()] = {*std::move(text), file.string()};
}

// Returns the text of a token: text itself, or {"content": ...}. nullopt for anything else.
std::optional<std::string> token_text(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return token["content"].get<std::string>();
  return std::nullopt;
}

// Takes the keys that end in "_token", and the entries of an object `extra_special_tokens`. Of an object without
// "__type", transformers makes a token only in special_tokens_map.json, but older versions did everywhere.
void add_tokens(const Json& object, Json& tokens) {
  for (const auto& [key, value] : object.items()) {
    if (key.ends_with("_token")) {
      if (const auto text = token_text(value)) tokens[key] = *text;
    } else if (key == "extra_special_tokens" && value.is_object()) {
      add_tokens(value, tokens);
    }
  }
}

}  // namespace

const ChatTemplateText& ChatFiles::choose(bool with_tools) const {
  const auto tool_use = templates.find("tool_use");
  if (with_tools && tool_use != templates.end()) return tool_use->second;
  const auto plain = templates.find("default");
  if (plain != templates.end()) return plain->second;
  if (templates.empty())
    throw DataError(
        folder.string() +
        ": has no chat template; add the file chat_template.jinja, or `chat_template` to tokenizer_config.json");
  std::string names;
  for (const auto& [name, text] : templates) names += (names.empty() ? "" : ", ") + name;
  throw DataError(folder.string() + ": has the chat templates " + names +
                  ", and none of them is \"default\"; name one of them so");
}

ChatFiles read_chat_files(const fs::path& folder) {
  ChatFiles out;
  out.folder = folder;
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw DataError(folder.string() + ": expected the folder of a tokenizer");
  const fs::path config_file = folder / "tokenizer_config.json";
  const Json config = read_object(config_file);
  read_template_files(out);
  if (out.templates.empty() && config.contains("chat_template") && !config["chat_template"].is_null())
    add_templates(config["chat_template"], config_file, out);
  if (out.templates.empty()) {
    const fs::path legacy = folder / "chat_template.json";
    const Json object = read_object(legacy);
    if (object.contains("chat_template")) add_templates(object["chat_template"], legacy, out);
  }
  if (config.is_object()) add_tokens(config, out.special_tokens);
  if (!config.contains("added_tokens_decoder")) {
    const Json map = read_object(folder / "special_tokens_map.json");
    if (map.is_object()) add_tokens(map, out.special_tokens);
  }
  return out;
}

}  // namespace titan::data
