// A dataset of text -> shards of tokens on disk (indexed_shards.h), on several threads, resumably.
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
  // What the source and the tokenizer are, in words: a run that finds shards of other words refuses to go on.
  std::string source;
  std::string tokenizer;
  std::vector<FileFacts> files = {};  // of the source, which PREFIX.json keeps; none: nothing is known of them
  // Shards of files that have changed since are kept all the same.
  bool allow_changed_files = false;
  bool append_bos = false;  // before every document, where the tokenizer has one
  bool append_eos = false;  // after
  OnBadRecord on_bad_record = OnBadRecord::kError;
  std::int64_t workers = 1;
  std::int64_t shard_documents = 0;  // documents of one shard; 0: see default_shard_documents()
};

// 64 shards, but no shard below 16 or above 100,000 documents: a function of the data alone, so that the shards are.
std::int64_t default_shard_documents(std::int64_t num_documents);

struct TokenizeProgress {
  std::int64_t shards = 0;           // in all
  std::int64_t finished_shards = 0;  // those of earlier runs too
  std::int64_t kept_shards = 0;      // finished by earlier runs
  std::int64_t documents = 0;        // of this run
  std::int64_t tokens = 0;           // of this run
  std::int64_t bad_records = 0;      // skipped by this run
};

// Writes PREFIX.json (what is being made) and the shards. A shard that is there already is not made again; what was
// half-made when a run was killed is. Shards do not depend on the number of workers or on where a run was interrupted:
// the bytes are the same. Every second, and at the end, `report` is called on the calling thread; when it gives false,
// the workers stop after the document they are at. Gives the last progress. Throws DataError, also for a PREFIX that
// was begun with other options, or of files that have changed since.
TokenizeProgress tokenize_to_shards(const TextSource& source, const Tokenizer& tokenizer,
                                    const TokenizeOptions& options,
                                    const std::function<bool(const TokenizeProgress&)>& report);

}  // namespace titan::data
