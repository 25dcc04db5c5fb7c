// Tests which tokens end a text, and what an export has of a chat template.
#include "data/conversations/stop_tokens.h"

#include <gmock/gmock.h>

#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Upper-case letters are special tokens; "Z" is EOS and has no other id.
class LetterTokenizer final : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return {ids.begin(), ids.end()}; }
  std::optional<std::int32_t> bos_id() const override { return std::nullopt; }
  std::optional<std::int32_t> eos_id() const override { return 'Z'; }
  std::int64_t vocab_size() const override { return 128; }
  bool is_special(std::int32_t id) const override { return id >= 'A' && id <= 'Y'; }
};

std::optional<std::int32_t> end_with(const std::string& text) {
  const TempFolder folder;
  folder.write("chat_template.jinja", text);
  const LetterTokenizer tokenizer;
  return end_of_turn(read_chat_format(folder.path(), tokenizer, std::nullopt), tokenizer);
}

TEST(EndOfTurn, IsTheFirstSpecialTokenBehindAnAnswer) {
  EXPECT_EQ(end_with("{% for m in messages %}U{{ m.content }}-.EF{% endfor %}"), 'E');
  EXPECT_EQ(end_with("{% for m in messages %}U{{ m.content }}.{% endfor %}"), std::nullopt);
  EXPECT_EQ(end_with("{% for m in messages %}{{ m.role }}E{% endfor %}"), std::nullopt);  // leaves the answer out
  EXPECT_EQ(end_with("{{ raise_exception('a system prompt is missing') }}E"), std::nullopt);
}

TEST(StopTokens, AreListedOnce) {
  const LetterTokenizer tokenizer;
  EXPECT_THAT(stop_tokens(tokenizer, std::nullopt, {}), ElementsAre('Z'));
  EXPECT_THAT(stop_tokens(tokenizer, 'Z', {'Z'}), ElementsAre('Z'));
  EXPECT_THAT(stop_tokens(tokenizer, 'E', {'q', 'E', 'Z', 'q'}), ElementsAre('Z', 'E', 'q'));
  EXPECT_THAT(stop_tokens(ByteTokenizer(true, /*with_eos=*/false), std::nullopt, {}), IsEmpty());
}

// A folder with a byte-level tokenizer.json of the letters "a" to "c", and the special tokens "A" with the id 3, "B"
// with 4, ... as many as `specials` has.
void write_tokenizer(const TempFolder& folder, const std::string& specials) {
  std::string added;
  for (std::size_t i = 0; i < specials.size(); ++i)
    added += (i > 0 ? "," : "") + (R"({"id": )" + std::to_string(3 + i)) + R"(, "content": ")" + specials[i] +
             R"(", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})";
  folder.write("tokenizer.json",
               R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}, "added_tokens": [)" +
                   added +
                   R"(], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
                      "decoder": {"type": "ByteLevel"}})");
}

TEST(StopTokens, OfAnotherTokenizerAreThoseWrittenAlike) {
  const TempFolder ours, theirs;
  write_tokenizer(ours, "ZYE");
  const auto tokenizer = make_tokenizer(ours.path());
  const auto stay = [&](bool are_chosen) {
    return stops_that_stay({{3, 0, 5, 500, -1}, are_chosen}, theirs.path(), *tokenizer, ours.path());
  };
  EXPECT_THAT(stay(true), ElementsAre(3, 0, 5, 500, -1));  // theirs has none
  EXPECT_THAT(stay(false), ElementsAre(3, 5));             // the special ones
  write_tokenizer(theirs, "ZYE");
  EXPECT_THAT(stay(true), ElementsAre(3, 0, 5, 500, -1));  // the same
  write_tokenizer(theirs, "EXZ");
  EXPECT_THAT(stay(true), ElementsAre(5, 3));  // theirs 3 is "E", 0 is text, 5 is "Z"
  theirs.write("tokenizer.json", "{}");
  EXPECT_THAT(stay(true), IsEmpty());  // nobody knows what they mean
}

TEST(ChatTemplateOfAnExport, IsAddedUnlessTheTokenizerHasIt) {
  const TempFolder folder;
  const auto added = [&](const std::string& text) {
    std::map<std::string, std::string> files;
    add_chat_template(text, folder.path(), files);
    return files;
  };
  EXPECT_THAT(added("one"), ElementsAre(Pair("chat_template.jinja", "one")));
  folder.write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_THAT(added("one"), IsEmpty());
  EXPECT_THAT(added("two"), ElementsAre(Pair("chat_template.jinja", "two")));
}

}  // namespace
}  // namespace titan::data
