// Tests which solved questions come before a question, against Python and lm-evaluation-harness 0.4.13's samplers.
#include "data/tasks/solved_examples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "base/error.h"
#include "data/tasks/python_random.h"
#include "tests/support/temporary_folder.h"

namespace titan::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The numbers are those of random.Random(seed).sample(range(population), count).
TEST(PythonRandom, DrawsAsPythonDoes) {
  PythonRandom random(1234);
  EXPECT_THAT(random.sample(30, 5), ElementsAre(24, 14, 3, 0, 2));
  EXPECT_THAT(random.sample(8, 4), ElementsAre(0, 5, 6, 7));
  EXPECT_THAT(random.sample(21, 5), ElementsAre(3, 11, 7, 0, 17));  // the largest population drawn from a list
  EXPECT_THAT(random.sample(22, 5), ElementsAre(0, 11, 20, 19, 15));
  EXPECT_THAT(random.sample(85, 7), ElementsAre(78, 59, 19, 11, 23, 14, 1));  // the same of seven
  EXPECT_THAT(random.sample(86, 7), ElementsAre(64, 62, 31, 8, 85, 69, 59));
  EXPECT_THAT(random.sample(39905, 11),
              ElementsAre(4493, 39417, 5828, 33753, 37945, 3012, 17667, 36466, 4133, 19819, 31525));
  EXPECT_THAT(random.sample(3, 3), ElementsAre(1, 2, 0));
  EXPECT_THAT(random.sample(1, 1), ElementsAre(0));
  EXPECT_THAT(random.sample(5, 0), ElementsAre());
}

TEST(PythonRandom, TakesAnySeed) {
  EXPECT_THAT(PythonRandom(0).sample(30, 5), ElementsAre(27, 12, 24, 28, 13));
  EXPECT_THAT(PythonRandom(4294967295u).sample(30, 5), ElementsAre(20, 19, 6, 16, 9));
}

// More draws than the generator has words of state, so that it renews them.
TEST(PythonRandom, GoesOnAsPythonDoes) {
  PythonRandom random(1234);
  std::vector<std::size_t> last;
  for (int i = 0; i < 1000; ++i) last = random.sample(1119, 25);
  last.resize(6);
  EXPECT_THAT(last, ElementsAre(694, 754, 269, 506, 878, 649));
}

constexpr ChoiceFormat kFirst{read_choice, ChooseExamples::kFirst};
constexpr ChoiceFormat kDraw{read_choice, ChooseExamples::kDraw};
constexpr ChoiceFormat kDrawOthers{read_choice, ChooseExamples::kDrawOthers};

std::string record_of(char query) {
  return std::string(R"({"query":")") + query + R"(","choices":["no","yes"],"gold":1})";
}

class SolvedExamplesTest : public ::testing::Test {
 protected:
  // Returns a path to a file with a question for each letter.
  std::string file(const std::string& name, const std::string& letters) {
    const auto path = folder_.path() / name;
    std::ofstream out(path);
    for (const char letter : letters) out << record_of(letter) << "\n";
    return path.string();
  }

  // Returns the letters of the three examples before each question of `path`, one word for each.
  static std::vector<std::string> before(const ChoiceFormat& format, const std::string& questions,
                                         const std::string& path, const std::string& examples) {
    SolvedExamples solved(
        {.name = "t", .kind = "choice", .field = "", .path = path, .examples = examples, .num_fewshot = 3}, format);
    std::vector<std::string> out;
    for (const char letter : questions) {
      const JsonRecord record("q:1", record_of(letter));
      std::string& letters = out.emplace_back();
      const std::string text = solved.before(read_choice(record), record);
      for (std::size_t at = 0; at < text.size(); at += std::string_view("a yes\n\n").size()) {
        letters += text[at];
        EXPECT_EQ(text.substr(at + 1, 6), " yes\n\n");
      }
    }
    return out;
  }

  const test::TemporaryFolder folder_;
};

// The letters are those of ContextSampler(docs).sample(3, eval_doc) in lm-evaluation-harness. Three of eight are "a":
// some draws have too few others and are made again.
TEST_F(SolvedExamplesTest, TheQuestionIsLeftOut) {
  const std::string path = file("all", "abcaadef");
  EXPECT_THAT(before(kDraw, "abaagaaaa", path, path),
              ElementsAre("fed", "ade", "bec", "fec", "faa", "bfd", "bef", "dbf", "cfe"));
  EXPECT_THAT(before(kDrawOthers, "abaag", path, file("copy", "abcaadef")),
              ElementsAre("fed", "ade", "bec", "fec", "faa"));
  // The same file, found in a folder.
  std::filesystem::create_directory(folder_.path() / "folder");
  std::filesystem::copy(path, folder_.path() / "folder/all.jsonl");
  const std::string folder = (folder_.path() / "folder").string();
  for (const auto& [questions, examples] : {std::pair(folder, folder + "/all.jsonl"), {folder + "/all.jsonl", folder}})
    EXPECT_THAT(before(kDraw, "abaag", questions, examples), ElementsAre("fed", "ade", "bec", "fec", "faa"));
}

// The same without eval_doc.
TEST_F(SolvedExamplesTest, OfAnotherFileAllAreDrawn) {
  EXPECT_THAT(before(kDraw, "abaag", file("questions", "abag"), file("solved", "abcaadef")),
              ElementsAre("fae", "bea", "ade", "bac", "aae"));
}

// FirstNSampler.
TEST_F(SolvedExamplesTest, TheFirstOnes) {
  const std::string path = file("all", "abcaadef");
  EXPECT_THAT(before(kFirst, "abdg", path, path), ElementsAre("bcd", "aca", "abc", "abc"));
  EXPECT_THAT(before(kFirst, "ab", file("questions", "ab"), path), ElementsAre("abc", "abc"));
}

TEST_F(SolvedExamplesTest, OnlyThoseOfTheSubject) {
  const auto path = (folder_.path() / "dev").string();
  std::ofstream out(path);
  const auto record = [](const std::string& subject, const std::string& question) {
    return R"({"subject":")" + subject + R"(","question":")" + question +
           R"(","choices":["1","2","3","4"],"answer":3})";
  };
  out << record("x", "one") << "\n" << record("y_z", "two") << "\n" << record("x", "three") << "\n";
  out.close();
  SolvedExamples solved(
      {.name = "t", .kind = "mmlu", .field = "", .path = file("questions", "a"), .examples = path, .num_fewshot = 1},
      {read_mmlu, ChooseExamples::kFirst});
  const JsonRecord question("q:1", record("y_z", "four"));
  EXPECT_EQ(solved.before(read_mmlu(question), question), "two\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer: D\n\n");
  EXPECT_EQ(read_mmlu(question).description,
            "The following are multiple choice questions (with answers) about y z.\n\n");
  const JsonRecord other("q:2", record("w", "five"));
  EXPECT_THAT([&] { solved.before(read_mmlu(other), other); },
              ::testing::ThrowsMessage<DataError>(
                  HasSubstr("q:2: expected at least 1 different solved questions about \"w\" in " + path)));
}

TEST_F(SolvedExamplesTest, TooFewAreAnError) {
  const std::string path = file("few", "abc"), same = file("same", "aaab"), questions = file("questions", "a");
  EXPECT_THAT(before(kDraw, "a", questions, path).front().size(), 3);
  EXPECT_THAT(before(kFirst, "d", path, path), ElementsAre("abc"));
  EXPECT_THROW(before(kDraw, "a", path, path), DataError);
  EXPECT_THROW(before(kDrawOthers, "d", questions, path), DataError);
  EXPECT_THROW(before(kFirst, "a", path, path), DataError);
  EXPECT_THROW(before(kDraw, "a", same, same), DataError);
  EXPECT_THROW(before(kDraw, "a", questions, file("two", "ab")), DataError);
}

}  // namespace
}  // namespace titan::data
