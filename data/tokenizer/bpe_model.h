// Byte-pair encoding of words: the "model" of a tokenizer.json.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace titan::data {

// The model as tokenizer.json has it, with tokens spelled in the byte-level alphabet.
struct BpeSpec {
  std::unordered_map<std::string, std::int32_t> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // in order of priority
  bool ignore_merges = false;                               // a word that is a token is not split
  std::optional<std::string> unk_token;
};

// Immutable; calls may run on several threads, each with a Scratch of its own.
class BpeModel {
 public:
  struct Scratch;
  struct FreeScratch {
    void operator()(Scratch* scratch) const;
  };
  using ScratchPtr = std::unique_ptr<Scratch, FreeScratch>;
  static ScratchPtr make_scratch();

  // Throws DataError for a merge whose tokens are not in the vocabulary, and for an unknown token that could be needed.
  explicit BpeModel(const BpeSpec& spec);

  // Appends the ids of a word of raw bytes. Starts with one token per byte and repeats the first merge of the list that
  // applies, at its leftmost place. Skips bytes without a token: see missing_bytes().
  void encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;

  // Number of the 256 bytes that have no token.
  int missing_bytes() const { return missing_bytes_; }

 private:
  struct Merge {
    std::uint64_t pair = kNoPair;  // left id << 32 | right id
    std::uint32_t rank = 0;
    std::int32_t id = 0;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

  void add_merge(std::uint64_t pair, std::uint32_t rank, std::int32_t id);
  const Merge* find(std::int32_t left, std::int32_t right) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;

  std::array<std::int32_t, 256> byte_ids_;  // -1: none
  int missing_bytes_ = 0;
  bool ignore_merges_ = false;
  std::unordered_map<std::string, std::int32_t> words_;  // raw bytes -> id, for ignore_merges
  std::vector<Merge> merges_;                            // hashed by pair, linear probing
};

}  // namespace titan::data
