#include "data/conversations/answers.h"

#include <algorithm>
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

class Finder {
 public:
  Finder(const ChatTemplate& chat_template, const Json& special_tokens, const Conversation& conversation)
      : template_(chat_template), conversation_(conversation) {
    options_.variables = special_tokens;
    options_.variables.update(conversation.variables);
    options_.tools = conversation.tools;
    full_ = template_.render(conversation.messages, options_);
  }

  TrainedText run() {
    TrainedText out{full_.text, {}};
    if (template_.has_generation_marks()) {
      out.answers = full_.generated;
      for (std::size_t i = 0; i < conversation_.messages.size(); ++i)
        if (is_answer(i) && !conversation_.is_trained[i]) remove(out.answers, locate(i));
    } else {
      for (std::size_t i = 0; i < conversation_.messages.size(); ++i)
        if (conversation_.is_trained[i]) out.answers.push_back(locate(i));
    }
    return out;
  }

 private:
  // Holds what surrounds the content of one message, found by rendering it with two contents.
  struct Around {
    std::string before;
    std::string behind;
  };

  bool is_answer(std::size_t i) const { return conversation_.messages[i]["role"] == "assistant"; }

  static void remove(std::vector<AnswerRange>& ranges, const AnswerRange& range) {
    std::erase_if(ranges, [&](const AnswerRange& each) { return each.begin < range.end && each.end > range.begin; });
  }

  std::string render(std::size_t count, bool asks, std::size_t changed = 0, const char* content = nullptr) const {
    Json messages = Json::array();
    for (std::size_t i = 0; i < count; ++i) messages.push_back(conversation_.messages[i]);
    if (content) messages[changed]["content"] = content;
    ChatOptions options = options_;
    options.add_generation_prompt = asks;
    return template_.render(messages, options).text;
  }

  // Returns nullopt if the template refuses a part of the conversation.
  std::optional<std::string> part(std::size_t count, bool asks) const {
    if (count == 0) return std::nullopt;
    try {
      return render(count, asks);
    } catch (const DataError&) {
      return std::nullopt;
    }
  }

  AnswerRange locate(std::size_t i) const {
    const std::string_view full = full_.text;
    const auto prompt = part(i, /*asks=*/true);
    const bool has_prompt = prompt && full.starts_with(*prompt);
    const bool is_last = i + 1 == conversation_.messages.size();
    const auto through = is_last ? std::optional(full_.text) : part(i + 1, /*asks=*/false);
    if (has_prompt && through && through->size() >= prompt->size() && full.starts_with(*through))
      return {prompt->size(), through->size()};
    if (const auto found = locate_content(i)) {
      const std::size_t begin = has_prompt ? std::min(prompt->size(), found->begin) : found->begin;
      return {begin, found->end};
    }
    throw DataError(
        "message " + std::to_string(i + 1) +
        ": the template renders it differently with and without what follows, so that the answer in it cannot be "
        "told from the rest; name a template with {% generation %} marks in chat.chat_template");
  }

  std::optional<AnswerRange> locate_content(std::size_t i) const {
    const std::string_view full = full_.text;
    const auto in_full = around(i, conversation_.messages.size());
    const auto as_last = around(i, i + 1);
    if (!in_full || !full.starts_with(in_full->before) || !full.ends_with(in_full->behind) ||
        in_full->before.size() + in_full->behind.size() > full.size())
      return std::nullopt;
    const std::size_t end = full.size() - in_full->behind.size();
    if (!as_last || !in_full->behind.starts_with(as_last->behind)) return std::nullopt;
    return AnswerRange{in_full->before.size(), end + as_last->behind.size()};
  }

  // Renders the first `count` messages with two contents of message i. They differ in the first and the last character.
  std::optional<Around> around(std::size_t i, std::size_t count) const {
    try {
      const std::string one = render(count, false, i, "one answer, Q"), other = render(count, false, i, "unlike it, Z");
      const std::size_t before = common_prefix(one, other);
      const std::size_t behind = common_suffix(one, other);
      if (one == other || before + behind > one.size()) return std::nullopt;
      return Around{one.substr(0, before), one.substr(one.size() - behind)};
    } catch (const DataError&) {
      return std::nullopt;
    }
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
