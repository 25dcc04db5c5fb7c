#include "data/tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "base/fs.h"
#include "data/text/code_points.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/sentencepiece_model.h"

namespace titan::data {
namespace {

using sentencepiece::SentencePieceProcessor;

constexpr std::size_t kMaxCachedWords = 1 << 17;
constexpr std::size_t kMaxCachedWordBytes = 64;

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

// Cache of the ids of words, for one thread at a time.
struct WordCache {
  std::unordered_map<std::string, std::vector<std::int32_t>, StringHash, std::equal_to<>> words;
  std::vector<int> scratch;
};

bool has_space_after_letter(std::string_view piece) {
  std::size_t at = 0;
  while (piece.substr(at).starts_with(kSpaceSymbol)) at += kSpaceSymbol.size();
  return piece.find(kSpaceSymbol, at) != std::string_view::npos;
}

// True if text may be cut before any run of spaces that follows another character. BPE merges never cross the cut,
// because no piece spans it. The text after the cut encodes alone as it does in place, because the prefix that the
// normalizer adds is the space that was cut off.
bool can_encode_by_words(const SentencePieceProcessor& processor) {
  const SentencePieceModelInfo info = read_sentencepiece_model_info(processor.serialized_model_proto());
  if (info.model_type != kModelTypeBpe || info.has_charsmap || info.remove_extra_whitespaces) return false;
  if (!info.add_dummy_prefix || !info.escape_whitespaces || info.treat_whitespace_as_suffix) return false;
  // An unknown space would be joined with an unknown character before it.
  if (processor.IsUnknown(processor.PieceToId(kSpaceSymbol))) return false;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    if (has_space_after_letter(processor.IdToPiece(id))) return false;
  }
  return true;
}

// Returns the length of the word at `text[0]`: it ends before the next space that follows another character.
std::size_t word_length(std::string_view text) {
  std::size_t at = text.find_first_not_of(' ');
  while (at != std::string_view::npos) {
    at = text.find(' ', at);
    // A single space at the end stays with its word: without it the rest is empty and encodes to nothing, not to a
    // space.
    if (at == std::string_view::npos || at + 1 == text.size()) break;
    // The space symbol itself in the text counts as a space.
    if (!text.substr(0, at).ends_with(kSpaceSymbol)) return at;
    at = text.find_first_not_of(' ', at);
  }
  return text.size();
}

void load(const std::filesystem::path& file, SentencePieceProcessor& processor) {
  const std::string fault = load_sentencepiece(read_file(file), processor);
  if (fault.empty()) return;
  throw DataError(file.string() + " is not a SentencePiece model (" + fault +
                  "). A tokenizer.model in tiktoken's text format, as Llama 3 ships, is not supported.");
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::filesystem::path& file, bool by_words, SpacePrefix prefix) {
    load(file, processor_);
    by_words_ = by_words && can_encode_by_words(processor_);
    if (prefix == SpacePrefix::kFirstText) load_without_prefix();
    for (int id = 0; id < processor_.GetPieceSize(); ++id)
      if (processor_.IsControl(id)) marks_.add(processor_.IdToPiece(id), id);
  }

  void encode_rendered(std::string_view bytes, std::vector<std::int32_t>& ids) const override {
    const ValidText valid(bytes);
    const std::string_view text = valid.view();
    for (std::size_t at = 0; at < text.size();) {
      const auto mark = marks_.find(text, at);
      const std::string_view between = text.substr(at, (mark ? mark->begin : text.size()) - at);
      if (at == 0 || !without_prefix_) {
        if (!between.empty()) encode(between, ids);
      } else {
        encode_without_prefix(between, ids);
      }
      if (!mark) return;
      ids.push_back(mark->value);
      at = mark->end;
    }
  }

  std::string special_text(std::int32_t id) const override {
    if (id < 0 || id >= vocab_size()) return decode({&id, 1});
    return processor_.IdToPiece(id);
  }

  void encode(std::string_view bytes, std::vector<std::int32_t>& ids) const override {
    const ValidText valid(bytes);
    const std::string_view text = valid.view();
    std::unique_ptr<WordCache> cache = borrow_cache();
    if (by_words_) {
      encode_words(text, *cache, ids);
    } else {
      encode_plain(text, cache->scratch);
      ids.insert(ids.end(), cache->scratch.begin(), cache->scratch.end());
    }
    const std::lock_guard lock(mutex_);
    caches_.push_back(std::move(cache));
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= vocab_size()) {
        throw DataError("cannot decode token id " + std::to_string(id) + ": the tokenizer has ids 0 to " +
                        std::to_string(vocab_size() - 1));
      }
    }
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    if (!status.ok()) throw DataError(std::string("SentencePiece could not decode: ") + status.message());
    return text;
  }

  std::optional<std::int32_t> bos_id() const override { return optional_id(processor_.bos_id()); }
  std::optional<std::int32_t> eos_id() const override { return optional_id(processor_.eos_id()); }
  std::int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  bool is_special(std::int32_t id) const override { return processor_.IsControl(id); }

 private:
  // Loads the model once more, without the space that it puts in front of a text. The library has no such switch, but
  // of two normalizer_spec in a message the later one's values count.
  void load_without_prefix() {
    constexpr std::string_view kNoDummyPrefix("\x1a\x02\x18\x00", 4);  // normalizer_spec {add_dummy_prefix: false}
    without_prefix_ = std::make_unique<SentencePieceProcessor>();
    const std::string fault =
        load_sentencepiece(processor_.serialized_model_proto() + std::string(kNoDummyPrefix), *without_prefix_);
    if (!fault.empty()) throw DataError("SentencePiece could not load its model: " + fault);
  }

  void encode_without_prefix(std::string_view text, std::vector<std::int32_t>& ids) const {
    std::vector<int> found;
    const auto status = without_prefix_->Encode(text, &found);
    if (!status.ok()) throw DataError(std::string("SentencePiece could not encode: ") + status.message());
    ids.insert(ids.end(), found.begin(), found.end());
  }

  static std::optional<std::int32_t> optional_id(int id) { return id < 0 ? std::nullopt : std::optional(id); }

  std::unique_ptr<WordCache> borrow_cache() const {
    const std::lock_guard lock(mutex_);
    if (caches_.empty()) return std::make_unique<WordCache>();
    std::unique_ptr<WordCache> cache = std::move(caches_.back());
    caches_.pop_back();
    return cache;
  }

  void encode_plain(std::string_view text, std::vector<int>& ids) const {
    ids.clear();
    const auto status = processor_.Encode(text, &ids);
    if (!status.ok()) throw DataError(std::string("SentencePiece could not encode: ") + status.message());
  }

  void encode_words(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const {
    bool first = true;
    while (!text.empty()) {
      const std::size_t length = word_length(text);
      // Every word but the first begins with the space that the normalizer adds again.
      append_word(first ? text.substr(0, length) : text.substr(1, length - 1), cache, ids);
      text.remove_prefix(length);
      first = false;
    }
  }

  void append_word(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const {
    if (const auto found = cache.words.find(word); found != cache.words.end()) {
      ids.insert(ids.end(), found->second.begin(), found->second.end());
      return;
    }
    encode_plain(word, cache.scratch);
    ids.insert(ids.end(), cache.scratch.begin(), cache.scratch.end());
    if (word.size() > kMaxCachedWordBytes) return;
    if (cache.words.size() >= kMaxCachedWords) cache.words.clear();
    cache.words.emplace(word, std::vector<std::int32_t>(cache.scratch.begin(), cache.scratch.end()));
  }

  SentencePieceProcessor processor_;
  std::unique_ptr<SentencePieceProcessor> without_prefix_;  // null if each text gets the prefix
  TextMatcher marks_;                                       // control symbols, as they are written
  bool by_words_ = false;
  mutable std::mutex mutex_;                                // guards caches_
  mutable std::vector<std::unique_ptr<WordCache>> caches_;  // not in use by a call
};

}  // namespace

std::shared_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::filesystem::path& file, bool by_words,
                                                        SpacePrefix prefix) {
  return std::make_shared<SentencePieceTokenizer>(file, by_words, prefix);
}

std::vector<std::string> read_sentencepiece_pieces(const std::filesystem::path& file) {
  SentencePieceProcessor processor;
  load(file, processor);
  std::vector<std::string> pieces;
  for (int id = 0; id < processor.GetPieceSize(); ++id) pieces.push_back(processor.IdToPiece(id));
  return pieces;
}

}  // namespace titan::data
