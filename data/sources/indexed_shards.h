// Tokenized documents in Megatron's .bin/.idx format: dataset kind "indexed".
//
// PREFIX.bin holds the tokens of all documents, one after the other. PREFIX.idx, all numbers little-endian:
//   9 bytes   "MMIDIDX\0\0"
//   uint64    version, 1
//   uint8     type of a token: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16
//   uint64    S, number of sequences
//   uint64    D, number of document boundaries: documents + 1
//   int32[S]  tokens of each sequence
//   int64[S]  where each sequence begins in PREFIX.bin, in bytes
//   int64[D]  the first sequence of each document, and S at the end
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "data/sources/token_source.h"

namespace titan::data {

enum class TokenType : std::uint8_t { kUint8 = 1, kInt8 = 2, kInt16 = 3, kInt32 = 4, kInt64 = 5, kUint16 = 8 };

std::size_t bytes_of(TokenType type);

// Returns uint16 if every id fits, else int32.
TokenType token_type_for(std::int64_t vocab_size);

// Opens shards as windows of seq_len + 1 tokens of one stream: the tokens of all shards, in the order of their names.
// Tokens after the last full window are dropped. `path` is one shard ("PREFIX", with or without .idx or .bin), all
// shards that `titan-train tokenize --output PREFIX` wrote ("PREFIX" again), or a folder, including its subfolders.
// Opening reads and checks every .idx once and keeps nothing of it. Throws DataError for a missing or incomplete shard,
// for an index that is not an index, is cut short or disagrees with its .bin, and, from tokens(), for ids outside [0,
// vocab_size) and changed files.
std::shared_ptr<const TokenSource> open_indexed_shards(const std::filesystem::path& path, std::int64_t seq_len,
                                                       std::int64_t vocab_size);

// Returns the .bin and .idx files of the shards of `path`, in order. Throws DataError as open_indexed_shards() does.
std::vector<std::filesystem::path> list_indexed_files(const std::filesystem::path& path);

// Checks without reading tokens that the shards of `path` exist and that those written by `titan-train tokenize` were
// made with the tokenizer of this fingerprint (tokenizer.h). Throws DataError.
void check_indexed_shards(const std::filesystem::path& path, const std::string& tokenizer);

// Writes one shard. No file has its final name before finish(): PREFIX.bin gets its name first, and PREFIX.idx shows
// that the shard is complete. An object destroyed before finish() leaves PREFIX.bin.tmp behind, which the next one
// replaces.
class IndexedShardWriter {
 public:
  IndexedShardWriter(std::filesystem::path prefix, TokenType type);
  IndexedShardWriter(const IndexedShardWriter&) = delete;
  IndexedShardWriter& operator=(const IndexedShardWriter&) = delete;
  ~IndexedShardWriter();

  // Appends a document of one sequence.
  void add_document(std::span<const std::int32_t> tokens);

  // Flushes both files to the disk and gives them their final names.
  void finish();

 private:
  void flush();

  std::filesystem::path prefix_;
  std::filesystem::path temporary_;
  TokenType type_;
  int descriptor_ = -1;
  std::vector<char> buffer_;
  std::vector<std::int32_t> sizes_;
};

}  // namespace titan::data
