#include "apps/commands/tokenizer_command.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "apps/common/piped_input.h"
#include "apps/common/print_result.h"
#include "apps/flags/tokenizer_flags.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/dataset_kinds.h"
#include "data/io/files.h"
#include "data/sources/jsonl_source.h"
#include "data/sources/sentencepiece_training.h"
#include "data/sources/text_source.h"
#include "data/tokenizer/token_json.h"
#include "data/tokenizer/tokenizer.h"

namespace titan {
namespace {

namespace fs = std::filesystem;

void finish_printing() {
  if (std::fflush(stdout) != 0) throw Error("standard output cannot be written", kExitFailed);
}

int train_tokenizer(const TokenizerFlags::Train& flags) {
  const fs::path file = fs::path(flags.output) / "tokenizer.model";
  if (fs::exists(file)) throw ConfigError("error: " + file.string() + " exists; remove it or choose another --output");
  const auto started = std::chrono::steady_clock::now();
  const std::string kind = flags.dataset.empty() ? data::kind_by_names(flags.input) : flags.dataset;
  const auto source = data::open_dataset(kind, flags.input, flags.text_key);
  for (const auto& doubt : data::doubtful_names(kind, flags.input)) spdlog::warn(doubt);
  const auto trained = data::train_sentencepiece(
      *source, {flags.vocab_size, flags.type == "unigram", data::parse_on_bad_record(flags.on_bad_record)});
  std::error_code error;
  fs::create_directories(flags.output, error);
  if (error) throw ConfigError("error: --output " + flags.output + " cannot be made: " + error.message());
  write_file_atomically(file, trained.model);
  const auto tokenizer = data::make_tokenizer(file);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  if (trained.bad_records > 0) spdlog::warn("{} skipped", counted(trained.bad_records, "bad record"));
  std::fprintf(stderr, "titan-train tokenizer: made %s of %s from %s in %s\n", file.c_str(),
               counted(tokenizer->vocab_size(), "piece").c_str(),
               counted(source->num_documents() - trained.bad_records, "document").c_str(),
               format_duration(seconds.count()).c_str());
  return kExitDone;
}

int encode(const TokenizerFlags::Encode& flags) {
  const auto tokenizer = data::make_tokenizer(flags.tokenizer);
  const data::Tokenizer::Marks marks{flags.bos, flags.eos};
  // TorchTitan's rule, as in training: a token that the tokenizer does not have is not added.
  if (marks.bos && !tokenizer->bos_id()) spdlog::warn("--bos adds nothing: {} names no such token", flags.tokenizer);
  if (marks.eos && !tokenizer->eos_id()) spdlog::warn("--eos adds nothing: {} names no such token", flags.tokenizer);
  std::vector<std::int32_t> ids;
  const auto print_ids = [&](std::string_view text) {
    ids.clear();
    tokenizer->encode_marked(text, marks, ids);
    print_result(data::ids_to_json(ids) + "\n");
  };
  if (flags.jsonl.empty()) {
    const std::string text = read_standard_input();
    if (const auto bad = find_invalid_utf8(text)) {
      spdlog::warn("byte {} of standard input is not valid UTF-8: it and others like it count as U+FFFD", *bad);
    }
    print_ids(text);
  } else {
    const auto source = data::open_jsonl_files(flags.jsonl, flags.text_key);
    for (std::int64_t i = 0; i < source->num_documents(); ++i) print_ids(source->document(i));
  }
  finish_printing();
  return kExitDone;
}

int decode(const TokenizerFlags::Decode& flags) {
  const auto tokenizer = data::make_tokenizer(flags.tokenizer);
  const std::string input = read_standard_input();
  std::int64_t number = 0;
  bool first = true;
  for (const std::string& line : split(input, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    try {
      std::vector<std::int32_t> ids = data::ids_from_json(line);
      if (flags.skip_special_tokens) std::erase_if(ids, [&](std::int32_t id) { return tokenizer->is_special(id); });
      const std::string text = tokenizer->decode(ids);
      if (flags.jsonl) {
        print_result(data::text_to_json(text) + "\n");
      } else {
        print_result(first ? text : "\n" + text);
      }
    } catch (const DataError& error) {
      throw DataError("standard input, line " + std::to_string(number) + ": " + error.what());
    }
    first = false;
  }
  finish_printing();
  return kExitDone;
}

}  // namespace

int run_tokenizer_command(const std::vector<std::string>& args) {
  log_to_stderr("titan-train tokenizer");
  TokenizerFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  if (flags.word == "train") return train_tokenizer(flags.train);
  return flags.word == "encode" ? encode(flags.encode) : decode(flags.decode);
}

}  // namespace titan
