#include "data/conversations/chat_record.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json_error.h"
#include "base/limits/parse_json.h"
#include "base/text.h"

namespace titan::data {
namespace {

using Json = nlohmann::ordered_json;

// Names of speakers in "from", by the role that templates know.
const std::map<std::string, std::string, std::less<>> kRoles = {{"human", "user"},
                                                                {"user", "user"},
                                                                {"gpt", "assistant"},
                                                                {"assistant", "assistant"},
                                                                {"chatgpt", "assistant"},
                                                                {"bot", "assistant"},
                                                                {"model", "assistant"},
                                                                {"system", "system"},
                                                                {"developer", "developer"},
                                                                {"tool", "tool"},
                                                                {"function", "tool"},
                                                                {"observation", "tool"},
                                                                {"function_response", "tool"}};

std::string role_of(const std::string& speaker) {
  const auto found = kRoles.find(speaker);
  if (found != kRoles.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [name, role] : kRoles) known.push_back(name);
  throw DataError("\"from\": \"" + speaker + "\" is not a known speaker (" + join(known, ", ") +
                  "); write the messages with \"role\" and \"content\"");
}

// Returns the message with "role" and "content" in place of "from" and "value".
Json with_role(const Json& message, const std::string& name) {
  if (!message.is_object()) throw DataError(name + " is not an object: found " + message.type_name());
  Json out = message;
  if (!out.contains("role") && out.contains("from") && out["from"].is_string()) {
    out["role"] = role_of(out["from"].get<std::string>());
    out.erase("from");
    if (!out.contains("content") && out.contains("value")) {
      out["content"] = out["value"];
      out.erase("value");
    }
  }
  if (!out.contains("role") || !out["role"].is_string())
    throw DataError(name + " has no \"role\" that is text; its keys are " + [&] {
      std::vector<std::string> keys;
      for (const auto& [key, value] : message.items()) keys.push_back("\"" + key + "\"");
      return join(keys, ", ");
    }());
  const Json content = out.value("content", Json());
  const bool has_calls = out.contains("tool_calls") && !out["tool_calls"].is_null();
  if (!content.is_string() && !content.is_structured() && !(content.is_null() && has_calls))
    throw DataError(name + " has no \"content\" that is text; found " + content.type_name());
  return out;
}

// Returns the message's "weight", which says whether the assistant's text is trained.
bool has_weight(const Json& message, const std::string& name) {
  const auto weight = message.find("weight");
  if (weight == message.end() || weight->is_null()) return true;
  if (weight->is_number() && (*weight == 0 || *weight == 1)) return *weight == 1;
  throw DataError(name + ": \"weight\" must be 0 or 1, found " + weight->dump());
}

void add_messages(const Json& messages, const std::string& key, bool is_trained, Conversation& out) {
  if (!messages.is_array()) throw DataError("\"" + key + "\" is not a list of messages: found " + messages.type_name());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string name = "message " + std::to_string(i + 1) + " of \"" + key + "\"";
    Json message = with_role(messages[i], name);
    const bool is_answer = message["role"] == "assistant";
    out.is_trained.push_back(is_trained && is_answer && has_weight(message, name));
    out.messages.push_back(std::move(message));
  }
}

// Adds a half of a prompt with its completion: a text of `role`, or messages.
void add_half(const Json& record, const std::string& key, const char* role, bool is_trained, Conversation& out) {
  const Json half = record.value(key, Json());
  if (half.is_array()) return add_messages(half, key, is_trained, out);
  if (!half.is_string())
    throw DataError("\"" + key + "\" is neither text nor a list of messages: found " + half.type_name());
  out.messages.push_back({{"role", role}, {"content", half}});
  out.is_trained.push_back(is_trained);
}

void add_system(const Json& record, Conversation& out) {
  const auto system = record.find("system");
  if (system == record.end() || system->is_null() || *system == "") return;
  if (!system->is_string()) throw DataError(std::string("\"system\" is not text: found ") + system->type_name());
  const std::string first = out.messages.empty() ? "" : out.messages[0]["role"].get<std::string>();
  if (first == "system") throw DataError("\"system\" and the first message are both the system's; keep one of them");
  out.messages.insert(out.messages.begin(), Json{{"role", "system"}, {"content", *system}});
  out.is_trained.insert(out.is_trained.begin(), false);
}

Json tools_of(const Json& record) {
  Json tools = record.value("tools", Json());
  if (tools.is_string()) {
    if (tools == "") return nullptr;
    try {
      tools = parse_json<Json>(tools.get<std::string>());
    } catch (const nlohmann::json::exception& error) {
      throw DataError("\"tools\" is text that is not JSON: " + json_error_text(error.what()));
    }
  }
  if (tools.is_null() || (tools.is_array() && tools.empty())) return nullptr;
  if (!tools.is_array()) throw DataError(std::string("\"tools\" is not a list: found ") + tools.type_name());
  return tools;
}

std::string keys_of(const Json& record) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> keys;
  for (const auto& [key, value] : record.items())
    if (keys.size() < kMost) keys.push_back("\"" + key + "\"");
  return keys.empty() ? "none" : join(keys, ", ");
}

}  // namespace

Conversation parse_conversation(const Json& record) {
  Conversation out;
  const auto has = [&](const char* key) { return record.contains(key) && !record[key].is_null(); };
  if (has("messages")) {
    add_messages(record["messages"], "messages", true, out);
  } else if (has("conversations")) {
    add_messages(record["conversations"], "conversations", true, out);
  } else if (has("prompt") && has("completion")) {
    add_half(record, "prompt", "user", false, out);
    add_half(record, "completion", "assistant", true, out);
  } else {
    throw DataError("expected \"messages\", \"conversations\", or \"prompt\" and \"completion\"; the keys are " +
                    keys_of(record));
  }
  add_system(record, out);
  out.tools = tools_of(record);
  if (const Json variables = record.value("chat_template_kwargs", Json()); !variables.is_null()) {
    if (!variables.is_object())
      throw DataError(std::string("\"chat_template_kwargs\" is not an object: found ") + variables.type_name());
    out.variables = variables;
  }
  for (const bool trained : out.is_trained)
    if (trained) return out;
  throw DataError("no message is the assistant's (with a \"weight\" that is not 0), so there is nothing to learn");
}

}  // namespace titan::data
