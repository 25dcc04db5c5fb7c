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

  // Appends the ids of `text` to `ids`. Replaces every maximal sequence of bytes that is not valid UTF-8 by one U+FFFD,
  // as Python's bytes.decode(errors="replace") does. Adds no tokens around the text: see encode_marked().
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;

  // Appends the ids of text that has special tokens in it ("<s>", "<|im_end|>"), as a chat template writes them. Unlike
  // encode(), never takes these for text.
  virtual void encode_rendered(std::string_view text, std::vector<std::int32_t>& ids) const { encode(text, ids); }

  // Throws DataError for an id outside [0, vocab_size()). Decodes special tokens too; to skip them, drop the ids for
  // which is_special() is true.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  // Decodes the ids that are text. Skips special tokens and ids that only a model with more embeddings than this
  // tokenizer has tokens can give.
  std::string decode_text(std::span<const std::int32_t> ids) const;

  // nullopt if the tokenizer has no such token.
  virtual std::optional<std::int32_t> bos_id() const = 0;
  virtual std::optional<std::int32_t> eos_id() const = 0;

  // Upper bound of all ids, exclusive.
  virtual std::int64_t vocab_size() const = 0;

  // Returns how a special token is written in text: "<s>". Throws DataError for an id outside [0, vocab_size()).
  virtual std::string special_text(std::int32_t id) const { return decode({&id, 1}); }

  // True for an id that marks something (BOS, EOS, a chat role) and is not text.
  virtual bool is_special(std::int32_t) const { return false; }

  struct Marks {
    bool bos = true;
    bool eos = true;
  };

  // Returns the marks with which transformers encodes a text unless told otherwise, besides those of the tokenizer's
  // own template, which encode_marked() always adds. BOS, as its tokenizers of SentencePiece models do.
  virtual Marks usual_marks() const { return {.bos = true, .eos = false}; }

  // Appends the ids of `text` with the wanted marks around it. Does not add a mark that the tokenizer does not have,
  // nor twice one that the tokenizer's own template adds. Other tokens of the template are always added.
  virtual void encode_marked(std::string_view text, Marks marks, std::vector<std::int32_t>& ids) const;

  // Appends BOS + ids of `text` + EOS, as TorchTitan does for every document.
  void encode_document(std::string_view text, std::vector<std::int32_t>& ids) const { encode_marked(text, {}, ids); }
};

// Opens the tokenizer in `path`: a folder, or one of the files tokenizer.json (Hugging Face, byte-level BPE) and
// tokenizer.model (SentencePiece). If a folder holds both, uses tokenizer.json, as TorchTitan does, unless only
// SentencePiece supports its kind here; the log says which was used. Throws DataError if there is none, listing what
// was looked for and what the folder holds, and if the file is of an unsupported kind.
std::shared_ptr<Tokenizer> make_tokenizer(const std::filesystem::path& path);

// Returns a string that identifies a tokenizer: sizes and checksums of its files, which are `path` if that is a file,
// else tokenizer.json and tokenizer_config.json, else tokenizer.model.
std::string tokenizer_fingerprint(const std::filesystem::path& path);

// Throws DataError if the tokenizer has ids for which the model has no embedding. A larger model is allowed.
void check_vocab_size(const Tokenizer& tokenizer, std::int64_t model_vocab_size);

}  // namespace titan::data
