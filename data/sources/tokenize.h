// Tokenizes a text dataset into shards on disk (indexed_shards.h), on several threads; resumable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/io/file_facts.h"
#include "data/sources/text_source.h"
#include "data/sources/token_source.h"
#include "data/tokenizer/tokenizer.h"

namespace titan::data {

struct TokenizeOptions {
  std::filesystem::path output;  // PREFIX of PREFIX-00000-of-00010.bin, .idx, ...
  // Descriptions of the source and the tokenizer: a run refuses to continue shards with other descriptions.
  std::string source;
  std::string tokenizer;
  std::vector<FileFacts> files = {};  // files of the source, recorded in PREFIX.json; empty: unknown
  // Keeps the shards even if the source's files have changed since.
  bool allow_changed_files = false;
  bool append_bos = false;  // before every document, if the tokenizer has one
  bool append_eos = false;  // after every document
  OnBadRecord on_bad_record = OnBadRecord::kError;
  std::int64_t workers = 1;
  std::int64_t shard_documents = 0;  // documents per shard; 0: see default_shard_documents()
};

// Returns the documents per shard: for 64 shards, but between 16 and 100,000. Depends only on the data, so that the
// shards do too.
std::int64_t default_shard_documents(std::int64_t num_documents);

struct TokenizeProgress {
  std::int64_t shards = 0;           // number of all shards
  std::int64_t finished_shards = 0;  // including those of earlier runs
  std::int64_t kept_shards = 0;      // finished by earlier runs
  std::int64_t documents = 0;        // in this run
  std::int64_t tokens = 0;           // in this run
  std::int64_t bad_records = 0;      // skipped by this run
};

// Writes PREFIX.json (the plan) and the shards. Keeps finished shards and makes unfinished ones of a killed run again.
// The bytes of the shards do not depend on the number of workers or on where a run was interrupted. Calls `report` on
// the calling thread every second and at the end; if it returns false, the workers stop after their current document.
// Returns the last progress. Throws DataError, also if PREFIX was begun with other options or from files that have
// changed since.
TokenizeProgress tokenize_to_shards(const TextSource& source, const Tokenizer& tokenizer,
                                    const TokenizeOptions& options,
                                    const std::function<bool(const TokenizeProgress&)>& report);

}  // namespace titan::data
