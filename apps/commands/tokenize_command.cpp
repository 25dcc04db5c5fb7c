#include "apps/commands/tokenize_command.h"

#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <functional>

#include "apps/common/at_least_one.h"
#include "apps/common/print_result.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process/processors.h"
#include "base/process/signal.h"
#include "base/text.h"
#include "config/keys/datasets.h"
#include "data/io/file_facts.h"
#include "data/io/files.h"
#include "data/dataset_kinds.h"
#include "data/sources/tokenize.h"
#include "data/tokenizer/tokenizer.h"

namespace titan {
namespace {

namespace fs = std::filesystem;

struct TokenizeArguments {
  std::string tokenizer, input, dataset = "jsonl", text_key = "text", output, on_bad_record = "error";
  data::TokenizeOptions options;
};

void add_options(CLI::App& app, TokenizeArguments& arguments) {
  auto& options = arguments.options;
  options.workers = own_processors().quota;
  app.add_option("--tokenizer", arguments.tokenizer, "folder with the tokenizer, or its file")->required();
  app.add_option("--input", arguments.input, "file or folder with the documents")->required();
  app.add_option("--output", arguments.output, "PREFIX of the files to write; the folder is made")->required();
  app.add_option("--dataset", arguments.dataset, "kind of input: jsonl or text")->capture_default_str();
  app.add_option("--text-key", arguments.text_key, "the field of JSON lines that holds the document")
      ->capture_default_str();
  app.add_option("--workers", options.workers, "threads (default: one a core)")->check(at_least_one());
  app.add_flag("--append-bos", options.append_bos, "begin each document with the tokenizer's BOS, if it has one");
  app.add_flag("--append-eos", options.append_eos,
               "end each document with the tokenizer's EOS, if it has one; training reads text with both");
  app.add_option("--on-bad-record", arguments.on_bad_record, "error or skip")
      ->capture_default_str()
      ->check(CLI::IsMember({"error", "skip"}));
  app.add_flag("--allow-changed-files", options.allow_changed_files,
               "keep the shards that are there although the input has changed since they were made");
  app.add_option("--shard-documents", options.shard_documents,
                 "documents of one shard (default: 64 shards of 16 to 100,000 documents)")
      ->check(at_least_one());
}

// Where JSON lines were looked for: whether the folder has what is more likely meant.
bool holds_text_files(const TokenizeArguments& arguments) {
  if (config::lower_case(arguments.dataset) != "jsonl") return false;
  const std::vector<std::string> endings = {".txt", ".md"};
  try {
    return !data::list_files(arguments.input, endings).empty();
  } catch (const DataError&) {
    return false;
  }
}

std::unique_ptr<data::TextSource> open_input(const TokenizeArguments& arguments) {
  try {
    return data::open_dataset(arguments.dataset, arguments.input, arguments.text_key);
  } catch (const DataError& error) {
    if (!fs::is_directory(arguments.input) || !holds_text_files(arguments)) throw;
    throw DataError(std::string(error.what()) + " For text, a document a file, add --dataset text.");
  }
}

class Report {
 public:
  bool operator()(const data::TokenizeProgress& progress) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    spdlog::info("tokenize: {} of {}{}, {}, {}, {} tokens/s", progress.finished_shards,
                 counted(progress.shards, "shard"),
                 progress.kept_shards > 0 ? " (" + std::to_string(progress.kept_shards) + " of an earlier run)" : "",
                 counted(progress.documents, "document"), counted(progress.tokens, "token"),
                 with_thousands(static_cast<std::int64_t>(static_cast<double>(progress.tokens) / seconds)));
    return !stop_requested();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

int run_tokenize(const std::vector<std::string>& args) {
  CLI::App app(
      "Writes the tokens of every document to PREFIX-00000-of-NNNNN.bin and .idx (Megatron's format), for\n"
      "training.dataset = \"indexed\" with training.dataset_path = \"PREFIX\". Stopped or killed, the same command "
      "goes on\n"
      "where it was; the result is the same to the byte.",
      "titan-train tokenize");
  TokenizeArguments arguments;
  add_options(app, arguments);
  auto& options = arguments.options;
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::CallForHelp&) {
    print_result(app.help());
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(std::string("titan-train tokenize: error: ") + error.what() + "; --help lists what there is");
  }
  options.output = arguments.output;
  if (options.output.filename().empty())
    throw ConfigError("titan-train tokenize: error: --output: expected a prefix of file names, found a folder");
  options.on_bad_record = data::parse_on_bad_record(arguments.on_bad_record);
  init_log(0, 1, /*colors=*/true, /*is_shown=*/true);
  const auto tokenizer = data::make_tokenizer(arguments.tokenizer);
  const auto source = open_input(arguments);
  for (const auto& doubt : data::doubtful_names(arguments.dataset, arguments.input)) spdlog::warn(doubt);
  options.source = config::lower_case(arguments.dataset) + " " + fs::weakly_canonical(arguments.input).string();
  if (arguments.text_key != "text") options.source += " (" + arguments.text_key + ")";
  options.files = data::facts_of(data::list_dataset(arguments.dataset, arguments.input), arguments.input);
  options.tokenizer = data::tokenizer_fingerprint(arguments.tokenizer);
  Report report;
  const auto progress = data::tokenize_to_shards(*source, *tokenizer, options, std::ref(report));
  if (progress.bad_records > 0) spdlog::warn("{} skipped", counted(progress.bad_records, "bad record"));
  if (progress.finished_shards == progress.shards) return kExitDone;
  spdlog::info("tokenize: stopped; the same command goes on");
  return kExitSavedRequeue;
}

}  // namespace titan
