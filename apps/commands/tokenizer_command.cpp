#include "apps/commands/tokenizer_command.h"

#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "apps/common/at_least_one.h"
#include "apps/common/parse_command.h"
#include "apps/common/print_result.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/io/files.h"
#include "data/dataset_kinds.h"
#include "data/sources/jsonl_source.h"
#include "data/sources/sentencepiece_training.h"
#include "data/sources/text_source.h"
#include "data/tokenizer/token_json.h"
#include "data/tokenizer/tokenizer.h"

namespace titan {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTextKeyHelp = "the field of JSON lines that holds the document";

struct TrainArguments {
  std::string input;
  std::int64_t vocab_size = 0;
  std::string output;
  std::string dataset;  // empty: by the names
  std::string text_key = "text";
  std::string type = "bpe";
  std::string on_bad_record = "error";
};

struct EncodeArguments {
  std::string tokenizer;
  bool bos = false;
  bool eos = false;
  std::string jsonl;
  std::string text_key = "text";
};

struct DecodeArguments {
  std::string tokenizer;
  bool skip_special_tokens = false;
  bool jsonl = false;
};

void finish_printing() {
  if (std::fflush(stdout) != 0) throw Error("standard output cannot be written", kExitFailed);
}

int train_tokenizer(const TrainArguments& arguments) {
  const fs::path file = fs::path(arguments.output) / "tokenizer.model";
  if (fs::exists(file)) throw ConfigError("error: " + file.string() + " exists; remove it or choose another --output");
  const auto started = std::chrono::steady_clock::now();
  const std::string kind = arguments.dataset.empty() ? data::kind_by_names(arguments.input) : arguments.dataset;
  const auto source = data::open_dataset(kind, arguments.input, arguments.text_key);
  for (const auto& doubt : data::doubtful_names(kind, arguments.input)) spdlog::warn(doubt);
  const auto trained = data::train_sentencepiece(
      *source, {arguments.vocab_size, arguments.type == "unigram", data::parse_on_bad_record(arguments.on_bad_record)});
  std::error_code error;
  fs::create_directories(arguments.output, error);
  if (error) throw ConfigError("error: --output " + arguments.output + " cannot be made: " + error.message());
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

int encode(const EncodeArguments& arguments) {
  const auto tokenizer = data::make_tokenizer(arguments.tokenizer);
  const data::Tokenizer::Marks marks{arguments.bos, arguments.eos};
  // As in training, where TorchTitan's rule holds: what a tokenizer does not have is not added.
  if (marks.bos && !tokenizer->bos_id())
    spdlog::warn("--bos adds nothing: {} names no such token", arguments.tokenizer);
  if (marks.eos && !tokenizer->eos_id())
    spdlog::warn("--eos adds nothing: {} names no such token", arguments.tokenizer);
  std::vector<std::int32_t> ids;
  const auto print_ids = [&](std::string_view text) {
    ids.clear();
    tokenizer->encode_marked(text, marks, ids);
    print_result(data::ids_to_json(ids) + "\n");
  };
  if (arguments.jsonl.empty()) {
    const std::string text = read_standard_input();
    if (const auto bad = find_invalid_utf8(text)) {
      spdlog::warn("byte {} of standard input is not valid UTF-8: it and others like it count as U+FFFD", *bad);
    }
    print_ids(text);
  } else {
    const auto source = data::open_jsonl_files(arguments.jsonl, arguments.text_key);
    for (std::int64_t i = 0; i < source->num_documents(); ++i) print_ids(source->document(i));
  }
  finish_printing();
  return kExitDone;
}

int decode(const DecodeArguments& arguments) {
  const auto tokenizer = data::make_tokenizer(arguments.tokenizer);
  const std::string input = read_standard_input();
  std::int64_t number = 0;
  bool first = true;
  for (const std::string& line : split(input, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    try {
      std::vector<std::int32_t> ids = data::ids_from_json(line);
      if (arguments.skip_special_tokens) std::erase_if(ids, [&](std::int32_t id) { return tokenizer->is_special(id); });
      const std::string text = tokenizer->decode(ids);
      if (arguments.jsonl) {
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

void add_tokenizer_option(CLI::App& command, std::string& value) {
  command.add_option("--tokenizer", value, "folder with tokenizer.json or tokenizer.model")->required();
}

}  // namespace

int run_tokenizer_command(const std::vector<std::string>& args) {
  log_to_stderr("titan-train tokenizer");
  CLI::App app("Makes tokenizers and runs them.", "titan-train tokenizer");
  app.require_subcommand(1);
  TrainArguments training;
  CLI::App* train_command = app.add_subcommand("train", "Makes a SentencePiece tokenizer.model from text.");
  train_command
      ->add_option("--input", training.input, "text: a file or a folder, of JSON lines or plain, also .gz and .zst")
      ->required();
  train_command->add_option("--dataset", training.dataset,
                            "kind of input: jsonl or text (default: jsonl where a name ends as such files do)");
  train_command->add_option("--text-key", training.text_key, kTextKeyHelp)->capture_default_str();
  train_command->add_option("--vocab-size", training.vocab_size, "number of pieces")->required()->check(at_least_one());
  train_command->add_option("--output", training.output, "folder that gets tokenizer.model")->required();
  train_command->add_option("--type", training.type, "bpe or unigram")
      ->capture_default_str()
      ->check(CLI::IsMember({"bpe", "unigram"}));
  train_command
      ->add_option("--on-bad-record", training.on_bad_record, "error or skip: what a record that cannot be used does")
      ->capture_default_str()
      ->check(CLI::IsMember({"error", "skip"}));
  EncodeArguments encoding;
  CLI::App* encode_command = app.add_subcommand(
      "encode", "Prints the ids of standard input as one JSON array, or of every line of FILE as one array a line.");
  add_tokenizer_option(*encode_command, encoding.tokenizer);
  encode_command->add_flag("--bos", encoding.bos, "begin with the token that begins documents");
  encode_command->add_flag("--eos", encoding.eos, "end with the token that ends documents");
  encode_command->add_option("--text-key", encoding.text_key, kTextKeyHelp)->capture_default_str();
  encode_command->add_option("--jsonl", encoding.jsonl, "FILE of {\"text\": ...} lines, or a folder of such files");
  DecodeArguments decoding;
  CLI::App* decode_command = app.add_subcommand(
      "decode",
      "Prints the text of the JSON arrays on standard input, one a line; a newline separates the texts of several.");
  add_tokenizer_option(*decode_command, decoding.tokenizer);
  decode_command->add_flag("--skip-special-tokens", decoding.skip_special_tokens, "leave out BOS, EOS and their like");
  decode_command->add_flag("--jsonl", decoding.jsonl, "print {\"text\": ...} lines, which keep newlines apart");
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::CallForHelp&) {
    print_result(app.help());
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(std::string("titan-train tokenizer: error: ") + error.what() + "; --help lists what there is");
  }
  if (train_command->parsed()) return train_tokenizer(training);
  return encode_command->parsed() ? encode(encoding) : decode(decoding);
}

}  // namespace titan
