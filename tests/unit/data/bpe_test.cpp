// Tests the parts of the byte-level BPE tokenizer. The integration cases tokenizer_ids_* check that full tokenizers
// give the package's ids.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "data/text/code_points.h"
#include "data/text/nfc.h"
#include "data/text/split_regex.h"
#include "data/text/unicode_category.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/word_cache.h"
#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;
using namespace std::string_literals;

TEST(Utf8, ReplacesMaximalIllFormedSequences) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(replace_invalid_utf8("plain \xc3\xa9 \xf0\x9f\x98\x80"), "plain \xc3\xa9 \xf0\x9f\x98\x80");
  EXPECT_EQ(replace_invalid_utf8("\x80z"), r + "z");
  EXPECT_EQ(replace_invalid_utf8("\xf0\x9f\x98z"), r + "z");           // start of a valid sequence: once
  EXPECT_EQ(replace_invalid_utf8("\xf0\x9f"), r);                      // also at the end
  EXPECT_EQ(replace_invalid_utf8("\xe0\x80\x80"), r + r + r);          // overlong
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(replace_invalid_utf8("\xf4\x90\x80\x80"), r + r + r + r);  // too large
  EXPECT_EQ(replace_invalid_utf8("\xc3\xc3\xa9"), r + "\xc3\xa9");
}

TEST(Utf8, CodePointsThereAndBack) {
  for (const char32_t point : {U'\0', U'\x7f', U'\x80', U'\x7ff', U'\x800', U'\uffff', U'\U00010000', U'\U0010ffff'}) {
    std::string text = "a";
    append_utf8(text, point);
    std::size_t at = 1;
    EXPECT_EQ(next_code_point(text, at), point);
    EXPECT_EQ(at, text.size());
    EXPECT_EQ(previous_code_point(text, text.size()), point);
  }
}

TEST(ByteLevel, EveryByteHasACharacter) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string token;
    append_utf8(token, byte_characters()[static_cast<std::size_t>(byte)]);
    EXPECT_EQ(bytes_of_token(token), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(bytes_of_token("\xc4\xa0the\xc4\x8a"), " the\n");
  EXPECT_EQ(bytes_of_token("<\xe2\x96\x81>"), std::nullopt);
}

TEST(UnicodeCategory, ClassesAndTheirDifferences) {
  const auto letters = *category_ranges("L");
  EXPECT_TRUE(contains(letters, U'a'));
  EXPECT_TRUE(contains(letters, U'\u4e2d'));
  EXPECT_FALSE(contains(letters, U'1'));
  EXPECT_TRUE(contains(letters, U'\U000105C0'));  // from Unicode 16, unknown to PCRE2 10.42
  EXPECT_EQ(category_ranges("Xx"), std::nullopt);
  EXPECT_EQ(difference({{1, 9}, {20, 30}}, {{0, 1}, {3, 4}, {9, 22}, {30, 40}}),
            (CodeRanges{{2, 2}, {5, 8}, {23, 29}}));
}

std::vector<std::string> split(const std::string& pattern, std::string_view text, bool only_matches = false) {
  const SplitRegex regex(pattern);
  SplitRegex::Scratch scratch;
  std::vector<std::string_view> pieces;
  regex.split(text, only_matches, scratch, pieces);
  return {pieces.begin(), pieces.end()};
}

TEST(SplitRegex, KeepsOrDropsWhatLiesBetween) {
  EXPECT_THAT(split("\\d+", "a12b3c"), ElementsAre("a", "12", "b", "3", "c"));
  EXPECT_THAT(split("\\d+", "a12b3c", true), ElementsAre("12", "3"));
  EXPECT_THAT(split("x", ""), ElementsAre());
}

TEST(SplitRegex, ClassesAreOnigurumas) {
  // U+180E is a space for PCRE2 but not for Oniguruma; U+105C0 is a letter of Unicode 16.
  EXPECT_THAT(split("\\s+", "a\xe1\xa0\x8e b"), ElementsAre("a\xe1\xa0\x8e", " ", "b"));
  EXPECT_THAT(split("\\p{L}+", "1\xf0\x90\x97\x80z2"), ElementsAre("1", "\xf0\x90\x97\x80z", "2"));
  EXPECT_THAT(split("[^\\s\\p{L}]+", "\xf0\x90\x97\x80!! x"), ElementsAre("\xf0\x90\x97\x80", "!!", " x"));
  EXPECT_THAT(split("[\\S]+", "ab \xe1\xa0\x8e"), ElementsAre("ab", " ", "\xe1\xa0\x8e"));
  EXPECT_THAT(split("(?i:'s|'ll)", "x'S'lL'\xc5\xbf"), ElementsAre("x", "'S", "'lL", "'\xc5\xbf"));
}

TEST(SplitRegex, RefusesWhatItCannotTranslate) {
  for (const char* pattern : {"a\\b", "\\w+", "(a)\\1", "[a[b]]", "[a&&b]", "a{2}+", "(?i:ss)", "(?i:[a])", "(?<n>a)",
                              "\\p{Greek}", "a(", "a)", "[a", "\\", "\\xff", "a**", "\\X", "(?i:\xc3\xa9)", "{x"}) {
    EXPECT_THAT(data_error([&] { SplitRegex regex(pattern); }), HasSubstr(pattern)) << pattern;
  }
  EXPECT_THAT(data_error([] { SplitRegex regex("a*"); }), HasSubstr("can match nothing"));
}

TEST(SplitRegex, LongRuns) {
  const std::string spaces(1 << 20, ' ');
  const auto pieces = split("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", spaces + "x");
  EXPECT_THAT(pieces, ElementsAre(spaces.substr(1), " ", "x"));
}

TEST(Nfc, ComposesAndOrders) {
  EXPECT_EQ(to_nfc("cafe\xcc\x81"), "caf\xc3\xa9");
  EXPECT_EQ(to_nfc("a\xcc\x81\xcc\xa3"), "\xe1\xba\xa1\xcc\x81");             // dot below goes first
  EXPECT_EQ(to_nfc("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8"), "\xea\xb0\x81");  // jamo
  EXPECT_EQ(to_nfc("\xe2\x84\xab"), "\xc3\x85");                              // the Angstrom sign
  EXPECT_TRUE(is_surely_nfc("caf\xc3\xa9 \xc3\xbc"));
  EXPECT_FALSE(is_surely_nfc("e\xcc\x81"));
  // A mark that is newer than the package's tables (U+1AC1, class 230 since Unicode 14) is not reordered.
  EXPECT_EQ(to_nfc("a\xe1\xab\x81\xcc\xa3"), "a\xe1\xab\x81\xcc\xa3");
  // Half a million marks of alternating classes: quadratic ordering would take hours.
  std::string marks = "x";
  for (int i = 0; i < 250000; ++i) marks += "\xcc\x81\xcc\x96";
  EXPECT_EQ(to_nfc(marks).substr(0, 5), "x\xcc\x96\xcc\x96");
}

TEST(WordCache, ForgetsWhenFull) {
  WordCache cache(4);
  for (int i = 0; i < 100; ++i) {
    const std::string word = "word" + std::to_string(i);
    EXPECT_TRUE(cache.find(word).empty());
    const Ids ids = {i, i + 1};
    cache.insert(word, ids);
    EXPECT_THAT(cache.find(word), ElementsAre(i, i + 1));
    EXPECT_LE(cache.size(), 4u);
  }
  EXPECT_TRUE(cache.find("word0").empty());
  cache.insert(std::string(65, 'x'), Ids{1});
  EXPECT_TRUE(cache.find(std::string(65, 'x')).empty());
}

// Vocabulary of the bytes 'a' to 'd' and the results of `merges`, in the given order.
BpeSpec letters_spec(const std::vector<std::pair<std::string, std::string>>& merges) {
  BpeSpec spec;
  std::int32_t next = 0;
  for (const char* token : {"a", "b", "c", "d"}) spec.vocab[token] = next++;
  for (const auto& [left, right] : merges) spec.vocab.emplace(left + right, next++);
  spec.merges = merges;
  return spec;
}

Ids encode(const BpeModel& model, std::string_view word) {
  const auto scratch = BpeModel::make_scratch();
  Ids ids;
  model.encode(word, *scratch, ids);
  EXPECT_FALSE(ids.empty());
  Ids again;
  model.encode(word, *scratch, again);  // from the cache
  EXPECT_EQ(ids, again);
  return ids;
}

TEST(BpeModel, FirstMergeFirstLeftmostFirst) {
  const BpeModel model(letters_spec({{"b", "c"}, {"a", "b"}, {"a", "a"}, {"aa", "a"}}));
  EXPECT_THAT(encode(model, "abc"), ElementsAre(0, 4));  // b+c has the lower rank
  EXPECT_THAT(encode(model, "aaa"), ElementsAre(7));
  EXPECT_THAT(encode(model, "aaaab"), ElementsAre(7, 5));  // a+b before a+a
  EXPECT_EQ(model.missing_bytes(), 252);
  EXPECT_THAT(encode(model, "axb"), ElementsAre(5));  // a byte without a token is dropped
}

// Merges by definition: repeatedly the leftmost pair of the lowest rank.
Ids merge_slowly(const BpeSpec& spec, std::string_view word) {
  std::vector<std::string> parts;
  for (const char byte : word) parts.emplace_back(1, byte);
  for (bool merged = true; merged;) {
    merged = false;
    for (const auto& [left, right] : spec.merges) {
      for (std::size_t i = 0; i + 1 < parts.size() && !merged; ++i) {
        if (parts[i] != left || parts[i + 1] != right) continue;
        parts[i] += right;
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        merged = true;
      }
      if (merged) break;
    }
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(spec.vocab.at(part));
  return ids;
}

TEST(BpeModel, ShortAndLongWordsAreMergedByDefinition) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::string> tokens = {"a", "b", "c", "d"};
    std::vector<std::pair<std::string, std::string>> merges;
    for (int i = 0; i < 12; ++i) {
      merges.emplace_back(tokens[random() % tokens.size()], tokens[random() % tokens.size()]);
      if (std::ranges::count(merges, merges.back()) > 1) {
        merges.pop_back();
      } else {
        tokens.push_back(merges.back().first + merges.back().second);
      }
    }
    const BpeSpec spec = letters_spec(merges);
    const BpeModel model(spec);
    for (const std::size_t length : {1, 2, 7, 48, 49, 150}) {  // 49 symbols go through the queue
      std::string word;
      while (word.size() < length) word += "abcd"[random() % 4];
      ASSERT_EQ(encode(model, word), merge_slowly(spec, word)) << word;
    }
  }
}

TEST(BpeModel, WholeWordsFirstIfAsked) {
  BpeSpec spec = letters_spec({{"a", "b"}});
  spec.vocab["abc"] = 9;
  EXPECT_THAT(encode(BpeModel(spec), "abc"), ElementsAre(4, 2));
  spec.ignore_merges = true;
  EXPECT_THAT(encode(BpeModel(spec), "abc"), ElementsAre(9));
}

TEST(BpeModel, RefusesWhatDoesNotFit) {
  BpeSpec spec = letters_spec({{"a", "b"}});
  spec.merges.emplace_back("ab", "z");
  EXPECT_THAT(data_error([&] { BpeModel model(spec); }), HasSubstr("no \"z\""));
  spec.merges.pop_back();
  spec.unk_token = "a";
  EXPECT_THAT(data_error([&] { BpeModel model(spec); }), HasSubstr("model.unk_token"));
}

// Returns "text" or "text=id" for each piece.
std::vector<std::string> pieces_of(const std::vector<AddedToken>& tokens, std::string_view text) {
  AddedTokens added([](const std::string&) { return std::nullopt; }, 10,
                    [](std::string_view t) { return std::string(t); });
  added.add(tokens);
  std::vector<AddedTokens::Piece> pieces;
  added.split_raw(text, pieces);
  std::vector<std::string> out;
  for (const auto& piece : pieces) {
    out.emplace_back(piece.text);
    if (piece.id >= 0) out.back().append("=").append(std::to_string(piece.id));
  }
  return out;
}

TEST(AddedTokens, LeftmostLongestWithOptions) {
  const AddedToken plain{.content = "<a>", .normalized = false};
  const AddedToken longer{.content = "<a>b", .normalized = false};
  EXPECT_THAT(pieces_of({plain, longer}, "x<a>b<a>"), ElementsAre("x", "<a>b=11", "<a>=10"));
  const AddedToken left{.content = "<l>", .lstrip = true, .normalized = false};
  const AddedToken right{.content = "<r>", .rstrip = true, .normalized = false};
  EXPECT_THAT(pieces_of({left, right}, "x \xe3\x80\x80<l> y<r> \n<l>"),
              ElementsAre("x", " \xe3\x80\x80<l>=10", " y", "<r> \n=11", "<l>=10"));
  // White space that the previous token absorbed is not a token itself.
  const AddedToken blank{.content = "\n\n", .lstrip = true, .normalized = false};
  EXPECT_THAT(pieces_of({right, blank}, "<r>\n\nb"), ElementsAre("<r>\n\n=10", "b"));
  EXPECT_THAT(pieces_of({right, blank}, "<r> \n\n\n\nb"), ElementsAre("<r> \n\n\n\n=10", "b"));
  const AddedToken word{.content = "to", .single_word = true, .normalized = false};
  EXPECT_THAT(pieces_of({word}, "to into top to_ to\xc2\xb2 \xe2\x93\x90to"),
              ElementsAre("to=10", " into top to_ ", "to=10", "\xc2\xb2 \xe2\x93\x90to"));
}

TEST(AddedTokens, LaterPropertiesReplaceEarlierOnes) {
  AddedTokens added([](const std::string& t) { return t == "known" ? std::optional(3) : std::nullopt; }, 10,
                    [](std::string_view t) { return to_nfc(t); });
  added.add(std::vector<AddedToken>{{.content = "known"}, {.content = "new"}});
  EXPECT_EQ(added.id_of("known"), 3);
  EXPECT_EQ(added.id_of("new"), 10);
  EXPECT_FALSE(added.is_special(10));
  added.add(std::vector<AddedToken>{{.content = "new", .normalized = false, .special = true}, {.content = "newer"}});
  EXPECT_EQ(added.id_of("new"), 10);
  EXPECT_EQ(added.id_of("newer"), 11);
  EXPECT_TRUE(added.is_special(10));
  EXPECT_THAT(data_error([&] {
                added.add(std::vector<AddedToken>{{.content = "e\xcc\x81"}, {.content = "\xc3\xa9"}});
              }),
              HasSubstr("spelled alike"));
}

// A full tokenizer.json with all 256 bytes and two merges.
Json small_tokenizer() {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string token;
    append_utf8(token, byte_characters()[static_cast<std::size_t>(byte)]);
    vocab[token] = byte;
  }
  vocab["he"] = 256;
  vocab["\xc4\xa0he"] = 257;
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", Json::array({{{"id", 258},
                                         {"content", "<s>"},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", true}}})},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h e", "\xc4\xa0 he"}}}}};
}

TEST(BpeTokenizer, ReadsAFolder) {
  const TempFolder folder;
  folder.write("tokenizer.json", small_tokenizer().dump());
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "<e>"}})");
  const auto tokenizer = make_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->bos_id(), 258);
  EXPECT_EQ(tokenizer->eos_id(), 259);  // the config's own token
  Ids ids;
  tokenizer->encode_document("he he<s>", ids);
  EXPECT_THAT(ids, ElementsAre(258, 256, 257, 258, 259));
  EXPECT_EQ(tokenizer->decode(ids), "<s>he he<s><e>");
  EXPECT_TRUE(tokenizer->is_special(258));
  EXPECT_FALSE(tokenizer->is_special(256));
  EXPECT_THAT(data_error([&] { tokenizer->decode(Ids{260}); }), HasSubstr("260"));
  EXPECT_EQ(tokenizer->decode(Ids{0xe4, 0xb8}), "\xef\xbf\xbd");
}

TEST(BpeTokenizer, AddsNoMarkTwiceAndOneForEqualTexts) {
  const TempFolder folder;
  Json root = small_tokenizer();
  root["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {258}}, {"tokens", {"<s>"}}}}}}};
  folder.write("tokenizer.json", root.dump());
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "<s>"})");
  const auto tokenizer = make_tokenizer(folder.path());
  Ids ids;
  tokenizer->encode_marked("he", {.bos = false, .eos = false}, ids);
  tokenizer->encode_document("he", ids);
  EXPECT_THAT(ids, ElementsAre(258, 256, 258, 256));
  EXPECT_EQ(tokenizer->eos_id(), std::nullopt);
}

TEST(BpeTokenizer, RefusesATemplateWithAnIdThatItDoesNotHave) {
  const TempFolder folder;
  Json root = small_tokenizer();
  for (const int id : {259, 2147483647}) {
    for (const bool is_before : {true, false}) {
      Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
           token = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
      root["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", is_before ? Json{token, text} : Json{text, token}},
                                {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {id}}, {"tokens", {"<s>"}}}}}}};
      folder.write("tokenizer.json", root.dump());
      EXPECT_THAT(data_error([&] { make_tokenizer(folder.path()); }),
                  AllOf(HasSubstr("tokenizer.json: post_processor puts the token id " + std::to_string(id)),
                        HasSubstr("the tokenizer has ids 0 to 258")));
    }
  }
}

TEST(BpeTokenizer, RefusesByName) {
  const TempFolder folder;
  const auto refused = [&](const std::string& pointer, const Json& value) {
    Json root = small_tokenizer();
    root[Json::json_pointer(pointer)] = value;
    folder.write("tokenizer.json", root.dump());
    return data_error([&] { make_tokenizer(folder.path()); });
  };
  EXPECT_THAT(refused("/model/type", "Unigram"),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("model.type = \"Unigram\"")));
  EXPECT_THAT(refused("/model/dropout", 0.1), HasSubstr("model.dropout = 0.1"));
  EXPECT_THAT(refused("/model/byte_fallback", true), HasSubstr("model.byte_fallback"));
  EXPECT_THAT(refused("/model/end_of_word_suffix", "</w>"), HasSubstr("model.end_of_word_suffix"));
  EXPECT_THAT(refused("/model/new_option", 1), HasSubstr("model.new_option"));
  EXPECT_THAT(refused("/model/vocab/he", -1), HasSubstr("is not a token id"));
  EXPECT_THAT(refused("/model/merges/0", "h  e"), HasSubstr("model.merges"));
  EXPECT_THAT(refused("/normalizer", {{"type", "NFKC"}}), HasSubstr("normalizer.type = \"NFKC\""));
  EXPECT_THAT(refused("/pre_tokenizer", {{"type", "Whitespace"}}), HasSubstr("pre_tokenizer.type = \"Whitespace\""));
  EXPECT_THAT(refused("/pre_tokenizer", nullptr), HasSubstr("no ByteLevel step"));
  EXPECT_THAT(refused("/post_processor", {{"type", "BertProcessing"}}), HasSubstr("post_processor.type"));
  EXPECT_THAT(refused("/decoder", {{"type", "WordPiece"}}), HasSubstr("decoder.type"));
  EXPECT_THAT(refused("/truncation", {{"max_length", 5}}), HasSubstr("truncation"));
  EXPECT_THAT(refused("/padding", {{"pad_id", 5}}), HasSubstr("padding"));
  EXPECT_THAT(refused("/version", "2.0"), HasSubstr("version"));
  EXPECT_THAT(refused("/added_tokens/0/id", 300), AllOf(HasSubstr("says id 300"), HasSubstr("has id 258")));
  folder.write("tokenizer.json", "{\n  \"a\" 1}");
  EXPECT_THAT(data_error([&] { make_tokenizer(folder.path()); }),
              HasSubstr("tokenizer.json:2:7: not JSON: unexpected"));
  folder.write("tokenizer.json", R"({"a": 1})");
  EXPECT_THAT(data_error([&] { make_tokenizer(folder.path()); }), HasSubstr("tokenizer.json: a = 1 is not supported"));
  folder.write("tokenizer.json", small_tokenizer().dump());
  folder.write("tokenizer_config.json", R"({"bos_token": 3})");
  EXPECT_THAT(data_error([&] { make_tokenizer(folder.path()); }),
              AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("bos_token = 3")));
}

TEST(MakeTokenizer, PrefersTokenizerJson) {
  const TempFolder folder;
  std::filesystem::copy_file(TITAN_TEST_ASSETS "/tokenizer/tokenizer.model", folder.path() / "tokenizer.model");
  folder.write("tokenizer.json", small_tokenizer().dump());
  EXPECT_EQ(make_tokenizer(folder.path())->vocab_size(), 259);
  EXPECT_FALSE(is_sentencepiece_json(folder.path() / "tokenizer.json"));
  EXPECT_FALSE(is_sentencepiece_json(folder.path() / "tokenizer.model"));
  // Llama 2's folder has byte_fallback, which only SentencePiece supports.
  Json root = small_tokenizer();
  root["model"]["byte_fallback"] = true;
  root["added_tokens"].clear();
  folder.write("tokenizer.json", root.dump());
  EXPECT_TRUE(is_sentencepiece_json(folder.path() / "tokenizer.json"));
  EXPECT_EQ(make_tokenizer(folder.path())->vocab_size(), 2048);
  folder.write("tokenizer.model", "IQ== 0\n");
  EXPECT_THAT(data_error([&] { make_tokenizer(folder.path()); }), HasSubstr("byte_fallback"));
}

}  // namespace
}  // namespace titan::data
