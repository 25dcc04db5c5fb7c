// Flags of `titan-train tokenize`. No torch: completion and --help work without the engine.
#pragma once

#include <cstdint>
#include <string>

#include "apps/flags/parse_command.h"

namespace titan {

struct TokenizeFlags {
  std::string tokenizer, input, dataset = "jsonl", text_key = "text", output, on_bad_record = "error", chat_template;
  std::int64_t workers = 1;
  std::int64_t show = 0;             // conversations to print, instead of writing anything
  std::int64_t shard_documents = 0;  // 0: chosen from the number of documents
  bool append_bos = false;
  bool append_eos = false;
  bool allow_changed_files = false;
  bool json = false;
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, TokenizeFlags& flags);

}  // namespace titan
