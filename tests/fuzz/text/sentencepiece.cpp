#include <bit>

#include "data/tokenizer/tokenizer.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

namespace fs = std::filesystem;

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}

// Fields of a protobuf message.
std::string number_field(int field, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(value);
}
std::string bytes_field(int field, const std::string& bytes) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string piece(const std::string& text, float score, std::uint64_t type) {
  const std::string number = little_endian(std::bit_cast<std::uint32_t>(score), 4);
  return bytes_field(1, bytes_field(1, text) + varint(2 << 3 | 5) + number + number_field(3, type));
}

// Returns a model of few pieces; `type` is trainer_spec.model_type: 1 unigram, 2 BPE.
std::string model_of(std::uint64_t type, bool has_bytes) {
  enum { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };
  std::string model = piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) + piece("</s>", 0, kControl);
  for (int byte = 0; has_bytes && byte < 256; ++byte) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    model += piece(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">", 0, kByte);
  }
  float score = -1;
  for (const char* text : {"He", "ll", "Hell", "\xe2\x96\x81", "H", "e", "l", "o", "w", "1", "2"})
    model += piece(text, score--, kNormal);
  model += bytes_field(2, number_field(3, type) + number_field(35, has_bytes ? 1 : 0));
  return model + bytes_field(3, bytes_field(1, "identity") + number_field(3, 1) + number_field(4, 0));
}

}  // namespace

bool run_sentencepiece(std::string_view input) {
  static const MemoryFolder folder;
  write_over(folder.path() / "tokenizer.model", input);
  return accepts([&] {
    const auto tokenizer = data::make_tokenizer(folder.path());
    std::vector<std::int32_t> ids;
    accepts([&] { tokenizer->encode_document("Hello, w\xc3\xb6rld 12\n  \xff<s>", ids); });
    for (const auto id : ids) require(id >= 0 && id < tokenizer->vocab_size(), "an id beyond the vocabulary");
    accepts([&] { tokenizer->decode(ids); });
  });
}

Seeds sentencepiece_seeds() {
  return {{"bpe", model_of(2, true)}, {"bpe_without_bytes", model_of(2, false)}, {"unigram", model_of(1, false)}};
}

}  // namespace titan::fuzz
