#include "apps/commands/generation/prompt_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/fs.h"
#include "base/limits/parse_json.h"
#include "base/text.h"

namespace titan {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse_prompts(const std::string& message) {
  throw ConfigError("titan-train generate: error: --prompts: " + message);
}

bool has_text(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) && object.at(name).is_string();
}

bool are_messages(const Json& value) {
  return value.is_array() && !value.empty() && std::ranges::all_of(value, [](const Json& message) {
           return has_text(message, "role") && message.contains("content");
         });
}

GivenPrompt parse(const std::string& line, const std::string& where, bool is_chat) {
  const Json object = try_parse_json<Json>(line);
  if (object.is_discarded() || !object.is_object())
    refuse_prompts(
        where + ": expected a JSON object on each line of a .jsonl file; give a file of plain prompts another ending");
  const bool is_text = has_text(object, "prompt"), is_conversation = object.contains("messages");
  if (is_text == is_conversation)
    refuse_prompts(where + R"(: expected either "prompt", a text, or "messages"; found )" +
                   (is_text ? "both" : "neither"));
  if (is_text) return {.text = object.at("prompt"), .where = where};
  if (!is_chat) refuse_prompts(where + R"(: "messages" need --chat, which puts them into the chat template)");
  const Json& messages = object.at("messages");
  if (!are_messages(messages))
    refuse_prompts(where + R"(: expected "messages" to be a list of objects with "role" and "content")");
  return {.text = "", .messages = messages.dump(-1, ' ', false, Json::error_handler_t::replace), .where = where};
}

}  // namespace

std::vector<GivenPrompt> read_prompt_file(const std::filesystem::path& file, bool is_chat) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    refuse_prompts("expected a file with one prompt per line; there is none at " + file.string());
  const bool is_json = file.extension() == ".jsonl";
  std::vector<GivenPrompt> prompts;
  std::size_t number = 0;
  for (std::string line : split(read_file(file), '\n')) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    const std::string where = "line " + std::to_string(number) + " of " + file.string();
    prompts.push_back(is_json ? parse(line, where, is_chat) : GivenPrompt{.text = line, .where = where});
  }
  if (prompts.empty()) refuse_prompts(file.string() + " holds no prompt: all its lines are empty");
  return prompts;
}

}  // namespace titan
