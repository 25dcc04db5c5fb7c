#include "data/chat/chat_template.h"

#include <utility>

#include "data/chat/jinja/check_names.h"
#include "data/chat/jinja/evaluator.h"
#include "data/chat/jinja/syntax/parser.h"
#include "data/chat/jinja/syntax/template_source.h"
#include "data/chat/jinja/values/json_values.h"
#include "data/chat/jinja/values/python_text.h"

namespace titan::data {
namespace {

using Json = nlohmann::ordered_json;

// Marks the end of the text to continue; the same text as in transformers.
constexpr std::string_view kOpenEnd = "CONTINUE_FINAL_MESSAGE_TAG ";

// Prepares messages as transformers does before a template sees them.
Json normalized(const Json& messages) {
  if (!messages.is_array() || messages.empty())
    throw DataError("a conversation must be an array of at least one message; found " +
                    std::string(messages.type_name()));
  Json out = Json::array();
  for (const Json& message : messages) {
    if (!message.is_object())
      throw DataError("a message must be an object with \"role\" and \"content\"; found " +
                      std::string(message.type_name()));
    Json kept = Json::object();
    for (const auto& [key, value] : message.items())
      if (!value.is_null()) kept[key] = value;
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
      if (!kept.contains(name)) continue;
      Json reasoning = kept[name];
      Json aliased = Json::object();
      aliased["thinking"] = reasoning;
      for (const auto& [key, value] : kept.items()) aliased[key] = value;
      aliased["reasoning_content"] = std::move(reasoning);
      kept = std::move(aliased);
      break;
    }
    out.push_back(std::move(kept));
  }
  return out;
}

// Appends the mark to the text of the last message and returns that text without it.
std::string mark_open_end(Json& message) {
  const auto text = message.find("content");
  if (text != message.end() && text->is_string()) {
    const std::string open = text->get<std::string>();
    *text = open + std::string(kOpenEnd);
    return open;
  }
  if (text != message.end() && text->is_array()) {
    for (auto part = text->rbegin(); part != text->rend(); ++part) {
      if (!part->is_object() || !part->contains("text") || !(*part)["text"].is_string()) continue;
      const std::string open = (*part)["text"].get<std::string>();
      (*part)["text"] = open + std::string(kOpenEnd);
      return open;
    }
  }
  throw DataError("the last message has no text to continue; give it a \"content\", or do not continue it");
}

}  // namespace

struct ChatTemplate::Parsed {
  jinja::Source source;
  jinja::Body body;
  jinja::TemplateFacts facts;
};

ChatTemplate ChatTemplate::parse(std::string_view text, std::string name) {
  jinja::Source source(std::move(name), text);
  jinja::Body body = jinja::parse(source);
  const jinja::TemplateFacts facts = jinja::check_names(source, body);
  return ChatTemplate(std::make_shared<const Parsed>(Parsed{std::move(source), std::move(body), facts}));
}

bool ChatTemplate::has_generation_marks() const { return parsed_->facts.has_generation; }

ChatTemplate::Rendered ChatTemplate::render(const Json& messages, const ChatOptions& options) const {
  if (!options.continue_final_message) return render_once(normalized(messages), options);
  if (options.add_generation_prompt)
    throw DataError("the last message cannot be continued while a new one is started; choose one of both");
  return render_open(normalized(messages), options);
}

ChatTemplate::Rendered ChatTemplate::render_once(const Json& messages, const ChatOptions& options) const {
  std::vector<std::pair<std::string, jinja::Value>> variables;
  try {
    for (const auto& [name, value] : options.variables.items()) variables.emplace_back(name, jinja::from_json(value));
    for (const char* name : {"messages", "tools", "documents", "add_generation_prompt"})
      if (options.variables.contains(name))
        throw DataError("`" + std::string(name) + "` cannot be a variable of the template; it is set by the program");
    variables.emplace_back("messages", jinja::from_json(messages));
    variables.emplace_back("tools", jinja::from_json(options.tools));
    variables.emplace_back("documents", jinja::from_json(options.documents));
    variables.emplace_back("add_generation_prompt", jinja::Value::boolean(options.add_generation_prompt));
  } catch (const jinja::Fault& fault) {
    throw DataError(std::string("the conversation cannot be rendered: ") + fault.what());
  }
  Rendered rendered;
  std::vector<jinja::OutputRange> generated;
  jinja::Evaluator(parsed_->source, parsed_->body, options.clock).run(variables, rendered.text, generated);
  for (const auto& [begin, end] : generated) rendered.generated.push_back({begin, end});
  return rendered;
}

ChatTemplate::Rendered ChatTemplate::render_open(Json messages, const ChatOptions& options) const {
  const std::string open = mark_open_end(messages.back());
  Rendered rendered = render_once(messages, options);
  rendered.generated.clear();
  std::string& text = rendered.text;
  const std::string_view mark = jinja::strip(kOpenEnd, jinja::Side::kRight);
  const std::size_t at = text.rfind(mark);
  if (at == std::string::npos || text.find(jinja::strip(open)) == std::string::npos)
    throw parsed_->source.error(
        0, "the template changes or drops the text of the last message, which can therefore not be continued");
  const bool keeps_space = std::string_view(text).substr(at).starts_with(kOpenEnd);
  text.resize(at);
  if (!keeps_space) text.resize(jinja::strip(text, jinja::Side::kRight).size());
  return rendered;
}

}  // namespace titan::data
