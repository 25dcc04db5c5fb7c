// Tests which tokens of a conversation are labels, against the encoding of every prefix of its text.
#include "data/conversations/chat_samples.h"

#include <gmock/gmock.h>

#include <atomic>
#include <random>

#include "data/conversations/answers.h"
#include "data/sources/token_marks.h"
#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ChatJson = nlohmann::ordered_json;

// "<e>" is a special token; other characters are tokens in pairs, counted from the special token before them, so that
// what a place splits depends on all of that text. Counts the bytes that it encodes.
class PairTokenizer final : public Tokenizer {
 public:
  static constexpr std::string_view kEnd = "<e>";
  static constexpr std::int32_t kEndId = 256 * 257;

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    encoded_ += static_cast<std::int64_t>(text.size());
    for (std::size_t i = 0; i < text.size(); i += 2) {
      const auto byte = [&](std::size_t at) { return static_cast<std::int32_t>(static_cast<unsigned char>(text[at])); };
      ids.push_back(byte(i) + 256 * (i + 1 < text.size() ? 1 + byte(i + 1) : 0));
    }
  }
  void encode_rendered(std::string_view text, std::vector<std::int32_t>& ids) const override {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(kEnd), text.size());
      encode(text.substr(0, end), ids);
      text.remove_prefix(end);
      if (text.empty()) return;
      ids.push_back(kEndId);
      text.remove_prefix(kEnd.size());
    }
  }
  std::string decode(std::span<const std::int32_t>) const override { return std::string(kEnd); }
  std::optional<std::int32_t> bos_id() const override { return std::nullopt; }
  std::optional<std::int32_t> eos_id() const override { return kEndId; }
  std::int64_t vocab_size() const override { return kEndId + 1; }
  bool is_special(std::int32_t id) const override { return id == kEndId; }
  std::int64_t encoded_bytes() const { return encoded_; }

 private:
  mutable std::atomic<std::int64_t> encoded_ = 0;
};

struct Chat {
  explicit Chat(const ChatJson& messages, const char* end_of_turn) {
    const std::string text = std::string("{% for m in messages %}{{ m.role[0] }}:{{ m.content }}") + end_of_turn +
                             "{% endfor %}{% if add_generation_prompt %}a:{% endif %}";
    format.chat_template = ChatTemplate::parse(text, "t.jinja");
    data = folder.write("chats.jsonl", ChatJson{{"messages", messages}}.dump() + "\n");
    found =
        find_answers(format.chat_template, format.special_tokens, parse_conversation(ChatJson{{"messages", messages}}));
  }

  // Returns the labels by the encoding of every prefix.
  std::vector<bool> labels(const Tokenizer& tokenizer) const {
    const auto encode = [&](std::string_view text) {
      std::vector<std::int32_t> ids;
      tokenizer.encode_rendered(text, ids);
      return ids;
    };
    const auto all = encode(found.text);
    std::vector<bool> out(all.size());
    for (const auto& answer : found.answers) {
      const auto same = [&](std::size_t bytes, bool with_split) {
        const auto ids = encode(std::string_view(found.text).substr(0, bytes));
        const auto count = static_cast<std::size_t>(std::ranges::mismatch(ids, all).in1 - ids.begin());
        return count + (with_split && count < ids.size() ? 1 : 0);
      };
      for (std::size_t i = same(answer.begin, false); i < same(answer.end, true); ++i) out[i] = true;
    }
    return out;
  }

  TempFolder folder;
  ChatFormat format{ChatTemplate::parse("", "t.jinja"), std::nullopt, "", ChatJson::object(), ""};
  std::filesystem::path data;
  TrainedText found;
};

ChatJson random_messages(int turns, unsigned seed) {
  std::mt19937 random(seed);
  ChatJson messages = ChatJson::array();
  for (int i = 0; i < 2 * turns; ++i)
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"},
                        {"content", std::string(1 + random() % 20, static_cast<char>('a' + random() % 26))}});
  return messages;
}

TEST(ChatSamples, HaveTheLabelsOfEveryPrefix) {
  const auto tokenizer = std::make_shared<PairTokenizer>();
  for (unsigned seed = 0; seed < 50; ++seed)
    for (const char* end : {"<e>", ".", "<e>\n", ".<e>"}) {
      const Chat chat(random_messages(4, seed), end);
      const auto sample = ChatSamples(chat.data, chat.format, tokenizer).read(0);
      std::vector<bool> labels;
      for (const std::int32_t id : sample.tokens) labels.push_back(is_label(id));
      EXPECT_EQ(labels, chat.labels(*tokenizer)) << seed << " " << end;
    }
}

TEST(ChatSamples, WithToolsHaveTheTemplateForThem) {
  Chat chat(random_messages(1, 1), "<e>");
  const auto tokenizer = std::make_shared<PairTokenizer>();
  const auto tokens = [&](const std::string& more) {
    const auto path = chat.folder.write("one.jsonl", R"({"prompt": "q", "completion": "a")" + more + "}\n");
    return ChatSamples(path, chat.format, tokenizer).read(0).tokens.size();
  };
  const std::string tools = R"(, "tools": [{"type": "function"}])";
  EXPECT_EQ(tokens(tools), tokens(""));
  chat.format.tool_template = ChatTemplate::parse(
      "{{ tools | length }}tools{% for m in messages %}{{ m.content }}<e>{% endfor %}", "tools.jinja");
  EXPECT_NE(tokens(tools), tokens(""));
}

// A text is encoded once as a whole, and each answer and what is in front of it at most twice, once for its begin.
TEST(ChatSamples, OfManyTurnsAreEncodedInLinearTime) {
  const Chat chat(random_messages(300, 1), "<e>");
  const auto tokenizer = std::make_shared<PairTokenizer>();
  ChatSamples(chat.data, chat.format, tokenizer).read(0);
  EXPECT_LE(tokenizer->encoded_bytes(), 3 * static_cast<std::int64_t>(chat.found.text.size()));
}

}  // namespace
}  // namespace titan::data
