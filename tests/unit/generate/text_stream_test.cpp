// Tokens that are parts of characters, as byte-level BPE and SentencePiece's byte fallback have them.
#include "generate/text_stream.h"

#include <gtest/gtest.h>

#include "data/text/code_points.h"

namespace titan::generate {
namespace {

// Ids 0 to 255 are bytes, larger ones words.
const std::vector<std::string> kWords = {" the", " end", "\xe2\x82\xac"};  // the last one is U+20AC

std::string bytes_of(std::span<const std::int32_t> ids) {
  std::string bytes;
  for (const auto id : ids)
    bytes += id < 256 ? std::string(1, static_cast<char>(id)) : kWords.at(static_cast<std::size_t>(id) - 256);
  return bytes;
}

// Decodes like data/tokenizer/bpe_tokenizer.cpp: one U+FFFD for every maximal ill-formed sequence.
std::string decode(std::span<const std::int32_t> ids) { return data::replace_invalid_utf8(bytes_of(ids)); }

// Decodes like SentencePiece: one U+FFFD for each byte outside a character, and no space at the beginning.
std::string decode_pieces(std::span<const std::int32_t> ids) {
  const std::string bytes = bytes_of(ids);
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t length = 1;
    while (length <= 4 && at + length <= bytes.size() &&
           data::replace_invalid_utf8(bytes.substr(at, length)) != bytes.substr(at, length))
      ++length;
    const bool is_character = length <= 4 && at + length <= bytes.size();
    text += is_character ? bytes.substr(at, length) : "\xef\xbf\xbd";
    at += is_character ? length : 1;
  }
  return text.starts_with(' ') ? text.substr(1) : text;
}

std::vector<std::int32_t> bytes(const std::string& text) {
  std::vector<std::int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::vector<std::string> pieces(const Decode& decode_with, std::span<const std::int32_t> before,
                                const std::vector<std::int32_t>& ids) {
  TextStream stream(decode_with, before);
  std::vector<std::string> out;
  for (const auto id : ids) out.push_back(stream.add(id));
  out.push_back(stream.finish());
  return out;
}

using Pieces = std::vector<std::string>;

TEST(TextStream, GivesWholeCharactersOnly) {
  const std::string smile = "\xf0\x9f\x98\x80";  // U+1F600
  for (const Decode& each : {Decode(decode), Decode(decode_pieces)}) {
    EXPECT_EQ(pieces(each, {}, bytes("a" + smile + "b")), (Pieces{"a", "", "", "", smile, "b", ""}));
    EXPECT_EQ(pieces(each, {}, {258, 'x'}), (Pieces{kWords[2], "x", ""}));
  }
}

TEST(TextStream, ACharacterThatIsNotCompletedIsReplacedAtTheEnd) {
  EXPECT_EQ(pieces(decode, {}, bytes("a\xf0\x9f")), (Pieces{"a", "", "", "\xef\xbf\xbd"}));
  EXPECT_EQ(pieces(decode_pieces, {}, bytes("a\xf0\x9f")), (Pieces{"a", "", "", "\xef\xbf\xbd\xef\xbf\xbd"}));
  // An incomplete character that something else follows is emitted with it.
  EXPECT_EQ(pieces(decode, {}, bytes("\xf0\x9fz")), (Pieces{"", "", "\xef\xbf\xbdz", ""}));
}

TEST(TextStream, GarbageIsNotHeldBackForEver) {
  std::string all;
  std::size_t held = 0;
  TextStream stream(decode, {});
  for (int i = 1; i <= 200; ++i) {
    all += stream.add(0xff);
    held = static_cast<std::size_t>(i) - all.size() / 3;
    EXPECT_LE(held, 3u);
  }
  EXPECT_EQ((all + stream.finish()).size(), 600u);
}

TEST(TextStream, TheTextBeforeKeepsTheSpace) {
  const auto before = bytes("in");
  EXPECT_EQ(pieces(decode_pieces, before, {256, 257}), (Pieces{" the", " end", ""}));
  EXPECT_EQ(pieces(decode_pieces, {}, {256, 257}), (Pieces{"the", " end", ""}));
}

// Long texts are decoded window by window; the windows together equal the text of all ids.
TEST(TextStream, LongTextsAreThoseOfTheirTokens) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 500; ++i) {
    ids.push_back(256 + i % 3);
    for (const auto id : bytes(i % 7 == 0 ? "\xf0\x9f\x98\x80" : i % 5 == 0 ? "\xc3\xa4" : "x")) ids.push_back(id);
  }
  for (const Decode& each : {Decode(decode), Decode(decode_pieces)}) {
    std::string all;
    for (const auto& piece : pieces(each, {}, ids)) {
      EXPECT_EQ(piece, data::replace_invalid_utf8(piece));
      all += piece;
    }
    EXPECT_EQ(all, each(ids));
  }
}

}  // namespace
}  // namespace titan::generate
