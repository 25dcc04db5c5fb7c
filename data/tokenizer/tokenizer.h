// Text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace titan::data {

// Const calls may run on several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `ids`. Bytes that are not valid UTF-8 count as U+FFFD, one for every maximal
  // ill-formed sequence, which is what Python's bytes.decode(errors="replace") makes of them. Adds no token that stands
  // for no text: see encode_marked().
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;

  // Throws DataError when an id is outside [0, vocab_size()). Special tokens are text too; to leave them out, drop the
  // ids that is_special() names.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  // decode() of the ids that stand for text: not special tokens, nor ids that only a model with more embeddings than
  // this tokenizer has tokens can give.
  std::string decode_text(std::span<const std::int32_t> ids) const;

  // Nothing when the tokenizer has no such token.
  virtual std::optional<std::int32_t> bos_id() const = 0;
  virtual std::optional<std::int32_t> eos_id() const = 0;

  // Every id is below it.
  virtual std::int64_t vocab_size() const = 0;

  // True for an id that marks something (BOS, EOS, a chat role) rather than being text.
  virtual bool is_special(std::int32_t) const { return false; }

  struct Marks {
    bool bos = true;
    bool eos = true;
  };

  // Appends the ids of `text` with the wanted marks around it. A token that the tokenizer does not have is not added,
  // one that the tokenizer's own template puts there is not added twice. What else the template has is always added.
  virtual void encode_marked(std::string_view text, Marks marks, std::vector<std::int32_t>& ids) const;

  // Appends BOS + ids of `text` + EOS, as TorchTitan does for every document.
  void encode_document(std::string_view text, std::vector<std::int32_t>& ids) const { encode_marked(text, {}, ids); }
};

// The tokenizer in `path`: a folder, or one of the files tokenizer.json (Hugging Face, byte-level BPE) and
// tokenizer.model (SentencePiece). Where a folder holds both, tokenizer.json counts, as for TorchTitan, unless it is of
// a kind that only SentencePiece serves here; the log says which was taken. Throws DataError listing what was looked
// for and what the folder holds when there is none, and when the file is of an unsupported kind.
std::shared_ptr<Tokenizer> make_tokenizer(const std::filesystem::path& path);

// Tells one tokenizer from another: sizes and checksums of the files in `path` that make_tokenizer() would read.
std::string tokenizer_fingerprint(const std::filesystem::path& path);

// Throws DataError when the tokenizer can make ids that the model has no embedding for. A larger model is fine.
void check_vocab_size(const Tokenizer& tokenizer, std::int64_t model_vocab_size);

}  // namespace titan::data
