// Chat templates: text of a model's prompts, made of a conversation by the Jinja template that Hugging Face's
// tokenizers carry. The result is that of transformers' apply_chat_template(tokenize=False), to the byte.
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace titan::data {

struct ChatOptions {
  bool add_generation_prompt = false;  // ends with the start of an assistant's message
  // Leaves the last message open, so that a model can go on with it. Excludes add_generation_prompt.
  bool continue_final_message = false;
  nlohmann::ordered_json tools;      // array of JSON schemas; null if there are none
  nlohmann::ordered_json documents;  // array of objects; null if there are none
  // Object of further variables: special tokens ("bos_token") and what the template's authors made settable
  // ("enable_thinking").
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  std::function<std::time_t()> clock;  // for strftime_now(); the system's time if empty
};

// Immutable: several threads may render the same template at once.
class ChatTemplate {
 public:
  // Parses the text of a template. `name` is what messages call it, usually the file. Throws DataError for mistakes in
  // the template and for what is not supported: "NAME:LINE:COLUMN: the filter `groupby` is not supported; ...".
  static ChatTemplate parse(std::string_view text, std::string name);

  // Bytes [begin, end) of the text.
  struct Range {
    std::size_t begin;
    std::size_t end;
    bool operator==(const Range&) const = default;
  };
  struct Rendered {
    std::string text;
    // Holds what the assistant has written, {% generation %}, in order. Empty with continue_final_message.
    std::vector<Range> generated;
  };

  // Renders a conversation: an array of objects with "role" and "content". Like transformers, drops keys of messages
  // that are null, and copies a "reasoning" or "thinking" to "reasoning_content". Throws DataError for a conversation
  // that the template refuses (raise_exception) or fails on, with the place in the template, and if the result or the
  // work is beyond the limits of jinja/values/template_value.h.
  Rendered render(const nlohmann::ordered_json& messages, const ChatOptions& options) const;

  // True if the template contains {% generation %}: without it, Rendered::generated is always empty.
  bool has_generation_marks() const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}

  Rendered render_once(const nlohmann::ordered_json& messages, const ChatOptions& options) const;
  Rendered render_open(nlohmann::ordered_json messages, const ChatOptions& options) const;

  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace titan::data
