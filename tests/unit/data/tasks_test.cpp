// Tests how tasks become tokens: contexts and answers, windows of texts, and the words of formats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "data/tasks/choice_formats.h"
#include "data/tasks/open_task.h"
#include "data/tasks/scored_texts.h"
#include "tests/support/temporary_folder.h"

namespace titan::data {
namespace {

using config::TaskEntry;
using ::testing::ElementsAre;

// One token per byte, but a blank belongs to the letter after it (the letter's id + 256). BOS is 1.
class Letters : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool is_joined = text[i] == ' ' && i + 1 < text.size();
      if (is_joined) ++i;
      ids.push_back(static_cast<unsigned char>(text[i]) + (is_joined ? 256 : 0));
    }
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return ids[0] == 1 ? "<s>" : "?"; }
  std::optional<std::int32_t> bos_id() const override { return 1; }
  std::optional<std::int32_t> eos_id() const override { return 2; }
  std::int64_t vocab_size() const override { return 512; }
};

const Letters kLetters;
constexpr std::int32_t kA = 'a' + 256, kB = 'b' + 256;  // " a", " b"

TEST(TextScoring, BlanksAtTheEndOfTheContextGoToTheAnswer) {
  const TextScoring scoring(kLetters, 10);
  bool is_cut = true;
  const ScoredText plain = scoring.after_context("x", "q", " ab", is_cut);
  EXPECT_THAT(plain.tokens, ElementsAre(1, 'q', kA, 'b'));
  EXPECT_EQ(plain.num_scored, 2);
  EXPECT_FALSE(is_cut);
  const ScoredText moved = scoring.after_context("x", "q ", "a", is_cut);
  EXPECT_THAT(moved.tokens, ElementsAre(1, 'q', kA));
  EXPECT_EQ(moved.num_scored, 1);
}

TEST(TextScoring, WithoutAContextTheAnswerFollowsBos) {
  const TextScoring scoring(kLetters, 10);
  bool is_cut = true;
  EXPECT_THAT(scoring.after_context("x", "", "ab", is_cut).tokens, ElementsAre(1, 'a', 'b'));
  EXPECT_EQ(scoring.after_context("x", "", "ab", is_cut).num_scored, 2);
  EXPECT_THAT(scoring.after_context("x", "<s>q", "a", is_cut).tokens, ElementsAre('<', 's', '>', 'q', 'a'));
}

TEST(TextScoring, LongTextsLoseTheirBeginning) {
  const TextScoring scoring(kLetters, 3);
  bool is_cut = false;
  const ScoredText text = scoring.after_context("x", "qrst", " ab", is_cut);
  EXPECT_THAT(text.tokens, ElementsAre('s', 't', kA, 'b'));
  EXPECT_TRUE(is_cut);
  EXPECT_EQ(scoring.after_context("x", "q", "abc", is_cut).num_scored, 3);
  EXPECT_THROW(scoring.after_context("x", "q", "abcd", is_cut), DataError);
}

TEST(TextScoring, WindowsScoreEachTokenOnce) {
  const TextScoring scoring(kLetters, 3);
  const auto windows = scoring.windows("x", "abcdefg");
  ASSERT_EQ(windows.size(), 3u);
  // encode() puts BOS before the text, which is scored after another one, as lm-evaluation-harness does.
  EXPECT_THAT(windows[0].tokens, ElementsAre(1, 1, 'a', 'b'));
  EXPECT_THAT(windows[1].tokens, ElementsAre('b', 'c', 'd', 'e'));
  EXPECT_THAT(windows[2].tokens, ElementsAre('d', 'e', 'f', 'g'));
  EXPECT_EQ(windows[1].num_scored, 3);
  EXPECT_EQ(windows[2].num_scored, 2);
}

TEST(TextScoring, CountsWordsAsPythonSplits) {
  EXPECT_EQ(count_words("a b"), 2);
  EXPECT_EQ(count_words(" a \t\n b\xc2\xa0"), 4);
  EXPECT_EQ(count_words(""), 1);
}

ChoiceItem hellaswag(const std::string& ctx_a, const std::string& ctx_b) {
  return read_hellaswag({"f:1", R"({"activity_label":"Act","ctx_a":")" + ctx_a + R"(","ctx_b":")" + ctx_b +
                                    R"(","endings":["x","y [z] w"],"label":"1"})"});
}

TEST(ChoiceFormats, HellaSwagIsCleanedAsThere) {
  EXPECT_EQ(hellaswag("One.", "tWO it").context, "Act: One. Two it");
  EXPECT_EQ(hellaswag("One [title] two [header] three.", "").context, "Act: One. two three.");
  EXPECT_EQ(hellaswag("a [b", "c]d [e]").context, "Act: a d ");
  EXPECT_EQ(hellaswag("a [b\\nc] d", "").context, "Act: a [b\nc] d");
  EXPECT_THAT(hellaswag("a", "b").choices, ElementsAre("x", "y w"));
}

TEST(OpenTask, ScoresAreTheSharesOfRightAnswers) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "q.jsonl";
  std::ofstream(path) << R"({"query":"q","choices":["aaaa","b"],"gold":0})"
                      << "\n\n"
                      << R"({"query":"q","choices":["\u00e4\u00e4","b","c"],"gold":1})"
                      << "\n";
  const auto task = open_task({"name", "choice", "", path.string()}, kLetters, 10, std::nullopt);
  ASSERT_EQ(task.texts.size(), 5u);
  EXPECT_THAT(task.texts[1].tokens, ElementsAre(1, 'q', kB));
  // -4 of four letters is better than -2 of one, and -3 of one better than -7 of two, which are four bytes and tokens.
  // Of two equal choices, the first counts.
  const auto scores = task.scores(std::vector<double>{-4, -2, -7, -3, -3});
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0].name, "acc");
  EXPECT_EQ(scores[0].value, 0.5);
  EXPECT_EQ(scores[0].error, 0.5);
  EXPECT_EQ(scores[1].name, "acc_norm");
  EXPECT_EQ(scores[1].value, 1);
  EXPECT_EQ(open_task({"name", "choice", "", path.string()}, kLetters, 10, 1).num_items, 1);
}

TEST(OpenTask, PerplexityIsOfWordsAndBytesOfTheFirstTexts) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "t.jsonl";
  std::ofstream(path) << R"({"text":"a b"})"
                      << "\n"
                      << R"({"text":"c"})"
                      << "\n";
  const TaskEntry entry{"name", "jsonl", "text", path.string()};
  const auto task = open_task(entry, kLetters, 10, std::nullopt);
  ASSERT_EQ(task.texts.size(), 2u);
  const auto scores = task.scores(std::vector<double>{-4, -2});
  ASSERT_EQ(scores.size(), 3u);
  EXPECT_DOUBLE_EQ(scores[0].value, std::exp(6.0 / 3));
  EXPECT_DOUBLE_EQ(scores[1].value, std::exp(6.0 / 4));
  EXPECT_DOUBLE_EQ(scores[2].value, 6.0 / 4 / std::log(2.0));
  const auto first = open_task(entry, kLetters, 10, 1);
  EXPECT_EQ(first.num_items, 1);
  ASSERT_EQ(first.texts.size(), 1u);
  EXPECT_DOUBLE_EQ(first.scores(std::vector<double>{-4})[0].value, std::exp(4.0 / 2));
}

}  // namespace
}  // namespace titan::data
