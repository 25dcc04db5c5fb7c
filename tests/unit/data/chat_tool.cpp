// chat_tool: renders chat templates, for the tests that compare with Python's jinja2. Each line on standard input is
// {"template": ..., "messages": [...], "options": {...}}; each line on standard output is {"text": ..., "generated":
// [[begin, end], ...]}, with positions in characters, or {"error": ...}. Options: add_generation_prompt,
// continue_final_message, tools, documents, variables, time (seconds since 1970 for strftime_now).
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <string>

#include "base/error.h"
#include "data/chat/chat_template.h"

namespace {

using Json = nlohmann::ordered_json;
using titan::data::ChatOptions;
using titan::data::ChatTemplate;

ChatOptions read_options(const Json& json) {
  ChatOptions options;
  options.add_generation_prompt = json.value("add_generation_prompt", false);
  options.continue_final_message = json.value("continue_final_message", false);
  if (json.contains("tools")) options.tools = json["tools"];
  if (json.contains("documents")) options.documents = json["documents"];
  if (json.contains("variables")) options.variables = json["variables"];
  const std::time_t time = json.value("time", std::time_t{0});
  options.clock = [time] { return time; };
  return options;
}

std::size_t count_characters(const std::string& text, std::size_t bytes) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < bytes; ++i) count += (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
  return count;
}

Json render(const Json& request) {
  static std::map<std::string, ChatTemplate> parsed;
  const auto text = request["template"].get<std::string>();
  auto found = parsed.find(text);
  if (found == parsed.end()) found = parsed.emplace(text, ChatTemplate::parse(text, "template")).first;
  const ChatTemplate::Rendered rendered =
      found->second.render(request["messages"], read_options(request.value("options", Json::object())));
  Json ranges = Json::array();
  for (const auto& [begin, end] : rendered.generated)
    ranges.push_back({count_characters(rendered.text, begin), count_characters(rendered.text, end)});
  return {{"text", rendered.text}, {"generated", ranges}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      answer = render(Json::parse(line));
    } catch (const titan::DataError& error) {
      answer = {{"error", error.what()}};
    } catch (const std::exception& error) {
      std::fprintf(stderr, "chat_tool: %s\n", error.what());
      return 1;
    }
    std::cout << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
}
