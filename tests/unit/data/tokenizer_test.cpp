#include "data/tokenizer/tokenizer.h"

#include <gmock/gmock.h>

#include <random>
#include <thread>

#include "base/fs.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::filesystem::path kTokenizer = TITAN_TEST_ASSETS "/tokenizer";

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

TEST(Tokenizer, DefaultModel) {
  const auto tokenizer = make_tokenizer(kTokenizer);
  EXPECT_EQ(tokenizer->vocab_size(), 2048);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  std::vector<std::int32_t> ids = {7};  // appends
  tokenizer->encode_document("x", ids);
  ASSERT_GE(ids.size(), 4u);
  EXPECT_EQ(ids[0], 7);
  EXPECT_EQ(ids[1], 1);
  EXPECT_EQ(ids.back(), 2);
}

TEST(Tokenizer, DecodeGivesTheTextBack) {
  const auto tokenizer = make_tokenizer(kTokenizer / "tokenizer.model");
  using namespace std::string_literals;  // for the zero byte
  const auto text = "def f(x):\n    return  x\t# \xe6\xbc\xa2 \xf0\x9f\x98\x80\r\n\0end "s;
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
  const std::int32_t bad[] = {5, 2048};
  EXPECT_THAT(data_error([&] { tokenizer->decode(bad); }), HasSubstr("2048"));
}

TEST(Tokenizer, WordByWordEqualsTheLibrary) {
  const auto fast = make_sentencepiece_tokenizer(kTokenizer / "tokenizer.model", true);
  const auto plain = make_sentencepiece_tokenizer(kTokenizer / "tokenizer.model", false);
  // Spaces everywhere, the symbol for a space, characters without a piece, control characters.
  const std::vector<std::string> parts = {" ",
                                          "  ",
                                          "        ",
                                          "\n",
                                          "\t",
                                          "self",
                                          ".",
                                          "\xe2\x96\x81",
                                          "\xc3\xa9",
                                          "12",
                                          "\xe6\xbc\xa2",
                                          "\r\n",
                                          std::string(1, '\0'),
                                          "a",
                                          "return",
                                          "(",
                                          "<s>"};
  std::mt19937 random(11);
  for (int trial = 0; trial < 5000; ++trial) {
    std::string text;
    for (int i = std::uniform_int_distribution<int>(0, 12)(random); i > 0; --i) text += parts[random() % parts.size()];
    ASSERT_EQ(encode(*fast, text), encode(*plain, text)) << testing::PrintToString(text);
  }
  for (const auto& file : std::filesystem::directory_iterator(TITAN_TEST_ASSETS "/corpus/validation")) {
    const std::string text = read_file(file.path());
    ASSERT_EQ(encode(*fast, text), encode(*plain, text)) << file.path();
  }
}

TEST(Tokenizer, EncodesOnSeveralThreads) {
  const auto tokenizer = make_tokenizer(kTokenizer);
  const std::string text = "for name, value in sorted(items):\n        print(name,  value)\n";
  const auto expected = encode(*tokenizer, text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 200; ++j) {
        encode(*tokenizer, "word" + std::to_string(i * 1000 + j) + " tail");
        if (encode(*tokenizer, text) != expected) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(MakeTokenizer, SaysWhatIsThere) {
  const TempFolder folder;
  EXPECT_THAT(data_error([&] { make_tokenizer(folder.path() / "missing"); }), HasSubstr("missing"));
  folder.write("vocab.txt", "x");
  EXPECT_THAT(data_error([&] { make_tokenizer(folder.path()); }),
              AllOf(HasSubstr("a folder with tokenizer.json or tokenizer.model"), HasSubstr("1 entry: vocab.txt")));
  const auto model = folder.write("tokenizer.model", "IQ== 0\nIg== 1\n");  // tiktoken's format
  EXPECT_THAT(data_error([&] { make_tokenizer(folder.path()); }),
              AllOf(HasSubstr(model.string()), HasSubstr("not a SentencePiece model")));
  folder.write("tokenizer.model", "");
  EXPECT_THAT(data_error([&] { make_tokenizer(folder.path()); }), HasSubstr("not a SentencePiece model"));
}

// SentencePiece reports this fault by an exception of its dictionary, not by its status.
TEST(MakeTokenizer, RefusesASentencePieceModelWithAnEmptyPiece) {
  using std::string_view_literals::operator""sv;
  const TempFolder folder;
  const std::string unknown = "<unk>", unigram("\x12\x02\x18\x01"sv);
  const std::string pieces = "\x0a\x0e\x0a\x05" + unknown + std::string("\x15\0\0\0\0\x18\x02"sv) +
                             std::string("\x0a\x0a\x0a\x01\0\x15\0\0\x80\xbf\x18\x01"sv);
  const auto model = folder.write("tokenizer.model", pieces + unigram);
  EXPECT_THAT(data_error([&] { make_tokenizer(folder.path()); }),
              AllOf(HasSubstr(model.string() + " is not a SentencePiece model"), HasSubstr("zero-length key")));
}

// Makes a tokenizer from a folder with the default model and a file `name` with `content`. Returns the error.
std::string error_beside(const std::string& name, std::string_view content) {
  const TempFolder folder;
  folder.write("tokenizer.model", read_file(kTokenizer / "tokenizer.model"));
  folder.write(name, content);
  // Naming the model file itself ignores the other file.
  EXPECT_EQ(make_tokenizer(folder.path() / "tokenizer.model")->vocab_size(), 2048);
  return data_error([&] { make_tokenizer(folder.path()); });
}

TEST(MakeTokenizer, RefusesAddedTokensThatTheSentencePieceModelLacks) {
  const std::string json = R"({"version": "1.0", "model": {"type": "BPE", "byte_fallback": true}, "added_tokens": [
    {"id": 1, "content": "<s>"}, {"id": 2048, "content": "<|im_start|>"}, {"id": 2049, "content": "<|im_end|>"}]})";
  EXPECT_THAT(error_beside("tokenizer.json", json),
              AllOf(HasSubstr("tokenizer.json has 2 added tokens"), HasSubstr("\"<|im_start|>\" with id 2048"),
                    HasSubstr("ids 0 to 2047"), HasSubstr("byte_fallback"), HasSubstr("tokenizer.model itself")));
  EXPECT_THAT(error_beside("added_tokens.json", R"({"<s>": 1, "<pad>": 2048})"),
              AllOf(HasSubstr("added_tokens.json has 1 added token "), HasSubstr("\"<pad>\" with id 2048")));
  EXPECT_THAT(error_beside("added_tokens.json", R"({"<pad>": 2})"),
              AllOf(HasSubstr("\"<pad>\" with id 2"), HasSubstr("the model has \"</s>\"")));
  EXPECT_THAT(error_beside("tokenizer_config.json", R"({"added_tokens_decoder": {"2050": {"content": "<x>"}}})"),
              AllOf(HasSubstr("tokenizer_config.json has 1 added token "), HasSubstr("\"<x>\" with id 2050")));
  EXPECT_THAT(error_beside("tokenizer_config.json", R"({"eos_token": "<s>"})"),
              AllOf(HasSubstr("tokenizer_config.json: eos_token = \"<s>\""), HasSubstr("has \"</s>\" in its place")));
  EXPECT_THAT(error_beside("added_tokens.json", R"(["<pad>"])"),
              HasSubstr("added_tokens.json: it is not a JSON object"));
  EXPECT_THAT(error_beside("added_tokens.json", R"({"<pad>": "x"})"),
              HasSubstr("added_tokens.json: <pad> = \"x\" is not a token id"));
  EXPECT_THAT(error_beside("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})"),
              HasSubstr("\"x\", which is not a token id"));
}

TEST(MakeTokenizer, TakesAddedTokensThatTheSentencePieceModelHas) {
  const TempFolder folder;
  folder.write("tokenizer.model", read_file(kTokenizer / "tokenizer.model"));
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "byte_fallback": true}, "added_tokens": [
    {"id": 0, "content": "<unk>"}, {"id": 1, "content": "<s>"}, {"id": 2, "content": "</s>"}]})");
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>",
    "added_tokens_decoder": {"0": {"content": "<unk>"}, "1": {"content": "<s>"}}})");
  folder.write("added_tokens.json", R"({"</s>": 2})");
  EXPECT_EQ(make_tokenizer(folder.path())->vocab_size(), 2048);
  // Early conversions of Llama left these empty.
  folder.write("tokenizer_config.json", R"({"bos_token": "", "eos_token": "", "unk_token": ""})");
  EXPECT_EQ(make_tokenizer(folder.path())->vocab_size(), 2048);
}

TEST(CheckVocabSize, RefusesATokenizerLargerThanTheModel) {
  const ByteTokenizer tokenizer;
  EXPECT_NO_THROW(check_vocab_size(tokenizer, 258));
  EXPECT_NO_THROW(check_vocab_size(tokenizer, 1000));
  EXPECT_THAT(data_error([&] { check_vocab_size(tokenizer, 257); }), AllOf(HasSubstr("258"), HasSubstr("257")));
}

}  // namespace
}  // namespace titan::data
