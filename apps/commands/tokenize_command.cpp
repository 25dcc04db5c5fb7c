#include "apps/commands/tokenize_command.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <filesystem>
#include <functional>

#include "apps/commands/show_chats.h"
#include "apps/common/print_result.h"
#include "apps/flags/tokenize_flags.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process/signal.h"
#include "base/text.h"
#include "config/keys/datasets.h"
#include "data/dataset_kinds.h"
#include "data/io/file_facts.h"
#include "data/io/files.h"
#include "data/sources/tokenize.h"
#include "data/tokenizer/tokenizer.h"

namespace titan {
namespace {

namespace fs = std::filesystem;

// True if JSON lines were expected but the folder has text files, which are more likely meant.
bool holds_text_files(const TokenizeFlags& flags) {
  if (config::lower_case(flags.dataset) != "jsonl") return false;
  const std::vector<std::string> endings = {".txt", ".md"};
  try {
    return !data::list_files(flags.input, endings).empty();
  } catch (const DataError&) {
    return false;
  }
}

std::unique_ptr<data::TextSource> open_input(const TokenizeFlags& flags) {
  try {
    return data::open_dataset(flags.dataset, flags.input, flags.text_key);
  } catch (const DataError& error) {
    if (!fs::is_directory(flags.input) || !holds_text_files(flags)) throw;
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
  TokenizeFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  const bool is_chat = config::lower_case(flags.dataset) == "chat";
  if (flags.show > 0 && !is_chat)
    throw ConfigError("titan-train tokenize: error: --show: expected --dataset chat, found --dataset " + flags.dataset);
  if (flags.show == 0 && is_chat)
    throw ConfigError(
        "titan-train tokenize: error: --dataset chat: conversations are made into rows when a run opens them "
        "(training.dataset = \"chat\"); --show N prints what is trained");
  if (flags.show == 0 && flags.output.empty()) throw ConfigError("titan-train tokenize: error: --output is required");
  if (flags.show > 0) {
    log_to_stderr("titan-train tokenize");
    return show_chats(flags);
  }
  data::TokenizeOptions options;
  options.workers = flags.workers;
  options.append_bos = flags.append_bos;
  options.append_eos = flags.append_eos;
  options.allow_changed_files = flags.allow_changed_files;
  options.shard_documents = flags.shard_documents;
  options.output = flags.output;
  if (options.output.filename().empty())
    throw ConfigError("titan-train tokenize: error: --output: expected a prefix of file names, found a folder");
  options.on_bad_record = data::parse_on_bad_record(flags.on_bad_record);
  init_log(0, 1, /*colors=*/true, /*is_shown=*/true);
  const auto tokenizer = data::make_tokenizer(flags.tokenizer);
  const auto source = open_input(flags);
  for (const auto& doubt : data::doubtful_names(flags.dataset, flags.input)) spdlog::warn(doubt);
  options.source = config::lower_case(flags.dataset) + " " + fs::weakly_canonical(flags.input).string();
  if (flags.text_key != "text") options.source += " (" + flags.text_key + ")";
  options.files = data::facts_of(data::list_dataset(flags.dataset, flags.input), flags.input);
  options.tokenizer = data::tokenizer_fingerprint(flags.tokenizer);
  Report report;
  const auto progress = data::tokenize_to_shards(*source, *tokenizer, options, std::ref(report));
  if (progress.bad_records > 0) spdlog::warn("{} skipped", counted(progress.bad_records, "bad record"));
  if (progress.finished_shards == progress.shards) return kExitDone;
  spdlog::info("tokenize: stopped; run the same command again to continue");
  return kExitSavedRequeue;
}

}  // namespace titan
