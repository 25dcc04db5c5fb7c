// Flags of `titan-train tokenizer`. No torch: completion and --help work without the engine.
#pragma once

#include <cstdint>
#include <string>

#include "apps/flags/parse_command.h"

namespace titan {

struct TokenizerFlags {
  struct Train {
    std::string input;
    std::int64_t vocab_size = 0;
    std::string output;
    std::string dataset;  // empty: guessed from the file names
    std::string text_key = "text";
    std::string type = "bpe";
    std::string on_bad_record = "error";
  };

  struct Encode {
    std::string tokenizer;
    bool bos = false;
    bool eos = false;
    std::string jsonl;
    std::string text_key = "text";
  };

  struct Decode {
    std::string tokenizer;
    bool skip_special_tokens = false;
    bool jsonl = false;
  };

  std::string word;  // "train", "encode" or "decode"
  Train train;
  Encode encode;
  Decode decode;
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, TokenizerFlags& flags);

}  // namespace titan
