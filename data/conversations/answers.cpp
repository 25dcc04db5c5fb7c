#include "data/conversations/answers.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace titan::data {
namespace {

using Json = nlohmann::ordered_json;
using AnswerRange = ChatTemplate::Range;

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::size_t common_suffix(std::string_view a, std::string_view b) {
  std::size_t count = 0;
  while (count < std::min(a.size(), b.size()) && a[a.size() - 1 - count] == b[b.size() - 1 - count]) ++count;
  return count;
}

// Returns `text` up to its last complete mark or other character: "<|end|>\n<|" to "<|end|>\n".
std::string_view without_open_mark(std::string_view text) {
  const std::size_t open = text.rfind('<');
  const bool is_open = open != std::string_view::npos && text.find('>', open) == std::string_view::npos;
  return is_open ? text.substr(0, open) : text;
}

// Returns the mark that `text` begins with ("<|end|>"); "" if it begins with other text.
std::string_view first_mark(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  if (!text.starts_with('<')) return "";
  const std::string_view mark = text.substr(0, text.find('>') + 1);
  return mark.size() <= kLongest && mark.find_first_of(" \n") == std::string_view::npos ? mark : "";
}

// Returns what ends an answer of which `behind` follows in the full text, and `as_last` if it is the last message.
// Templates may end the full text with another mark than a turn.
std::string_view end_of_answer(std::string_view behind, std::string_view as_last) {
  const std::string_view common = without_open_mark(behind.substr(0, common_prefix(behind, as_last)));
  return common.empty() ? first_mark(behind) : common;
}

// Puts another text in the place of what the assistant says in a message: a call's name, or the content.
void change(Json& message, const char* text) {
  const auto calls = message.find("tool_calls");
  if (calls != message.end() && calls->is_array() && !calls->empty() && (*calls)[0].is_object()) {
    Json& call = (*calls)[0];
    Json& named = call.contains("function") ? call["function"] : call;
    named["name"] = text;
  } else {
    message["content"] = text;
  }
}

// Renders every text with one date: the samples of a run must not change with the day. Llama 3's templates have it
// where they know none.
std::time_t date_of_samples() {
  constexpr std::time_t kJuly26Of2024 = 1721995200;  // 12:00 UTC
  return kJuly26Of2024;
}

class Finder {
 public:
  Finder(const ChatTemplate& chat_template, const Json& special_tokens, const Conversation& conversation)
      : template_(chat_template), conversation_(conversation) {
    options_.variables = special_tokens;
    options_.variables.update(conversation.variables);
    options_.tools = conversation.tools;
    options_.clock = date_of_samples;
    full_ = template_.render(conversation.messages, options_);
  }

  TrainedText run() const {
    TrainedText out{full_.text, {}};
    if (template_.has_generation_marks()) {
      out.answers = marked();
    } else {
      for (std::size_t i = 0; i < conversation_.messages.size(); ++i)
        if (conversation_.is_trained[i]) out.answers.push_back(locate(i));
    }
    return out;
  }

 private:
  // Holds what surrounds a message, found by rendering it with two texts.
  struct Around {
    std::string before;
    std::string behind;
  };

  // Returns the marked ranges of the messages that are trained.
  std::vector<AnswerRange> marked() const {
    std::vector<bool> is_trained;
    for (std::size_t i = 0; i < conversation_.messages.size(); ++i)
      if (is_answer(i)) is_trained.push_back(conversation_.is_trained[i]);
    std::vector<AnswerRange> ranges = full_.generated;
    if (std::ranges::all_of(is_trained, [](bool trained) { return trained; })) return ranges;
    if (ranges.size() == is_trained.size()) {
      std::size_t next = 0;
      std::erase_if(ranges, [&](const AnswerRange&) { return !is_trained[next++]; });
      return ranges;
    }
    for (std::size_t i = 0; i < conversation_.messages.size(); ++i)
      if (is_answer(i) && !conversation_.is_trained[i]) remove(ranges, locate(i));
    return ranges;
  }

  bool is_answer(std::size_t i) const { return conversation_.messages[i]["role"] == "assistant"; }

  static void remove(std::vector<AnswerRange>& ranges, const AnswerRange& range) {
    std::erase_if(ranges, [&](const AnswerRange& each) { return each.begin < range.end && each.end > range.begin; });
  }

  Json first_messages(std::size_t count) const {
    Json messages = Json::array();
    for (std::size_t i = 0; i < count; ++i) messages.push_back(conversation_.messages[i]);
    return messages;
  }

  // Returns nullopt if the template refuses these messages.
  std::optional<std::string> render(const Json& messages, bool asks) const {
    if (messages.empty()) return std::nullopt;
    ChatOptions options = options_;
    options.add_generation_prompt = asks;
    try {
      return template_.render(messages, options).text;
    } catch (const DataError&) {
      return std::nullopt;
    }
  }

  AnswerRange locate(std::size_t i) const {
    const std::string_view full = full_.text;
    const auto prompt = render(first_messages(i), /*asks=*/true);
    const bool has_prompt = prompt && full.starts_with(*prompt);
    const bool is_last = i + 1 == conversation_.messages.size();
    const auto through = is_last ? std::optional(full_.text) : render(first_messages(i + 1), /*asks=*/false);
    if (has_prompt && through && through->size() >= prompt->size() && full.starts_with(*through))
      return {prompt->size(), through->size()};
    if (const auto found = locate_text(i)) {
      const auto begin = prompt ? end_of_prompt(i, *prompt) : std::nullopt;
      return {std::min(begin.value_or(found->begin), found->begin), found->end};
    }
    throw DataError("message " + std::to_string(i + 1) +
                    ": the template renders it differently with and without what follows, so that the answer in it "
                    "cannot be told from the rest; set chat.chat_template to a file with a template " +
                    (template_.has_generation_marks() ? "that marks this message too" : "with {% generation %} marks"));
  }

  // Returns where the prompt for message i ends in the full text, as far as that has it: a prompt may open thoughts
  // that the full text does not have. nullopt if the full text has other text before the prompt's own part.
  std::optional<std::size_t> end_of_prompt(std::size_t i, const std::string& prompt) const {
    const std::string_view full = full_.text;
    if (full.starts_with(prompt)) return prompt.size();
    const auto base = render(first_messages(i), /*asks=*/false);
    if (!base || !full.starts_with(*base)) return std::nullopt;
    const std::size_t common = without_open_mark(full.substr(0, common_prefix(full, prompt))).size();
    return common > base->size() ? std::optional(common) : std::nullopt;
  }

  // Finds a message by what changes with it.
  std::optional<AnswerRange> locate_text(std::size_t i) const {
    const std::string_view full = full_.text;
    const auto in_full = around(i, conversation_.messages.size());
    const auto as_last = around(i, i + 1);
    if (!in_full || !as_last || !full.starts_with(in_full->before) || !full.ends_with(in_full->behind) ||
        in_full->before.size() + in_full->behind.size() > full.size())
      return std::nullopt;
    const std::size_t end = full.size() - in_full->behind.size();
    return AnswerRange{in_full->before.size(), end + end_of_answer(in_full->behind, as_last->behind).size()};
  }

  // Renders the first `count` messages with two texts in message i. They differ in the first and the last character.
  std::optional<Around> around(std::size_t i, std::size_t count) const {
    Json messages = first_messages(count), others = messages;
    change(messages[i], "one_answer_Q");
    change(others[i], "unlike_it_Z");
    const auto one = render(messages, false), other = render(others, false);
    if (!one || !other || *one == *other) return std::nullopt;
    const std::size_t before = common_prefix(*one, *other), behind = common_suffix(*one, *other);
    if (before + behind > one->size()) return std::nullopt;
    return Around{one->substr(0, before), one->substr(one->size() - behind)};
  }

  const ChatTemplate& template_;
  const Conversation& conversation_;
  ChatOptions options_;
  ChatTemplate::Rendered full_;
};

}  // namespace

TrainedText find_answers(const ChatTemplate& chat_template, const Json& special_tokens,
                         const Conversation& conversation) {
  return Finder(chat_template, special_tokens, conversation).run();
}

}  // namespace titan::data
