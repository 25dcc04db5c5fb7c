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

  // Appends the ids of `text` (valid UTF-8) to `ids`. Adds no BOS or EOS: see encode_document().
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;

  // Throws DataError when an id is outside [0, vocab_size()).
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  // Nothing when the tokenizer has no such token.
  virtual std::optional<std::int32_t> bos_id() const = 0;
  virtual std::optional<std::int32_t> eos_id() const = 0;

  // Every id is below it.
  virtual std::int64_t vocab_size() const = 0;

  // Appends BOS + ids of `text` + EOS; a token that the tokenizer does not have is not added.
  void encode_document(std::string_view text, std::vector<std::int32_t>& ids) const;
};

// The tokenizer in `path`: a folder that holds tokenizer.model (SentencePiece), or that file itself.
// Throws DataError saying what the folder holds when there is none, and when the file is of an unsupported kind.
std::shared_ptr<Tokenizer> make_tokenizer(const std::filesystem::path& path);

// Throws DataError when the tokenizer can make ids that the model has no embedding for. A larger model is fine.
void check_vocab_size(const Tokenizer& tokenizer, std::int64_t model_vocab_size);

}  // namespace titan::data
