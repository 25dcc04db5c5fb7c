#include "apps/tokenize_command.h"

#include <spdlog/spdlog.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <thread>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/signal.h"
#include "base/text.h"
#include "data/permutation.h"
#include "data/registry.h"
#include "data/tokenize.h"

namespace titan {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHelp =
    R"(usage: titan-train tokenize --tokenizer FOLDER --input PATH --output PREFIX [options]

Writes the tokens of every document to PREFIX-00000-of-NNNNN.bin and .idx (Megatron's format), for
training.dataset = "indexed" with training.dataset_path = "PREFIX". Stopped or killed, the same command goes on where
it was; the result is the same to the byte.

  --tokenizer FOLDER      folder with the tokenizer, or its file
  --input PATH            file or folder with the documents
  --output PREFIX         where to write; the folder is made
  --dataset KIND          kind of input: jsonl (default) or text
  --workers N             threads (default: one a core)
  --append-bos            begin each document with the tokenizer's BOS, if it has one
  --append-eos            end each document with the tokenizer's EOS, if it has one; training reads text with both
  --on-bad-record WHAT    error (default) or skip
  --shard-documents N     documents of one shard (default: 64 shards of 16 to 100,000 documents)
)";

struct Arguments {
  std::string tokenizer, input, dataset = "jsonl";
  data::TokenizeOptions options;
  bool help = false;
};

[[noreturn]] void bad_command_line(const std::string& what) {
  throw ConfigError("command line: error: " + what + "; titan-train tokenize --help lists the options");
}

std::int64_t positive(const std::string& flag, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) {
    bad_command_line(flag + ": expected a positive integer, found \"" + text + "\"");
  }
  return value;
}

Arguments parse(const std::vector<std::string>& args) {
  Arguments out;
  out.options.workers = std::max(1u, std::thread::hardware_concurrency());
  const std::vector<std::string> names = {"--tokenizer", "--input",          "--output",     "--dataset",
                                          "--workers",   "--on-bad-record",  "--append-bos", "--append-eos",
                                          "--help",      "--shard-documents"};
  for (std::size_t i = 0; i < args.size(); ++i) {
    const auto equals = args[i].find('=');
    const std::string flag = args[i].substr(0, equals);
    const bool alone = flag == "--append-bos" || flag == "--append-eos" || flag == "--help" || flag == "-h";
    if (!alone && std::find(names.begin(), names.end(), flag) == names.end()) {
      const auto near = nearest_name(flag, names);
      bad_command_line("unknown option " + flag + (near ? "; did you mean " + *near + "?" : ""));
    }
    if (alone && equals != std::string::npos) bad_command_line(flag + " takes no value");
    const auto value = [&]() -> std::string {
      if (equals != std::string::npos) return args[i].substr(equals + 1);
      if (++i == args.size()) bad_command_line(flag + " needs a value");
      return args[i];
    };
    if (flag == "--tokenizer") out.tokenizer = value();
    if (flag == "--input") out.input = value();
    if (flag == "--output") out.options.output = value();
    if (flag == "--dataset") out.dataset = value();
    if (flag == "--workers") out.options.workers = positive(flag, value());
    if (flag == "--shard-documents") out.options.shard_documents = positive(flag, value());
    if (flag == "--on-bad-record") {
      const std::string policy = value();
      if (policy != "error" && policy != "skip") {
        bad_command_line("--on-bad-record: expected error or skip, found \"" + policy + "\"");
      }
      out.options.on_bad_record = data::parse_on_bad_record(policy);
    }
    if (flag == "--append-bos") out.options.append_bos = true;
    if (flag == "--append-eos") out.options.append_eos = true;
    if (flag == "--help" || flag == "-h") out.help = true;
  }
  if (out.help) return out;
  if (out.tokenizer.empty()) bad_command_line("--tokenizer FOLDER is missing");
  if (out.input.empty()) bad_command_line("--input PATH is missing");
  if (out.options.output.empty()) bad_command_line("--output PREFIX is missing");
  if (out.options.output.filename().empty())
    bad_command_line("--output: expected a prefix of file names, found a folder");
  return out;
}

// The tokenizer's files by name and content: the same command with another tokenizer in the folder is another job.
std::string describe_tokenizer(const fs::path& path) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const char* name : {"tokenizer.model", "tokenizer.json", "tokenizer_config.json"}) {
      if (fs::exists(path / name)) files.push_back(path / name);
    }
  } else {
    files.push_back(path);
  }
  std::vector<std::string> parts;
  for (const fs::path& file : files) {
    std::uint64_t hash = 0;
    const std::string content = read_file(file);
    for (const char byte : content) hash = data::mix_bits(hash ^ static_cast<unsigned char>(byte));
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
    parts.push_back(file.filename().string() + " " + text);
  }
  return join(parts, ", ");
}

class Report {
 public:
  bool operator()(const data::TokenizeProgress& progress) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    spdlog::info("tokenize: {} of {} shards{}, {} documents, {} tokens, {} tokens/s", progress.finished_shards,
                 progress.shards,
                 progress.kept_shards > 0 ? " (" + std::to_string(progress.kept_shards) + " of an earlier run)" : "",
                 with_thousands(progress.documents), with_thousands(progress.tokens),
                 with_thousands(static_cast<std::int64_t>(static_cast<double>(progress.tokens) / seconds)));
    return !stop_requested();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

int run_tokenize(const std::vector<std::string>& args) {
  Arguments arguments = parse(args);
  if (arguments.help) {
    std::cout << kHelp;
    return kExitDone;
  }
  init_log(0, 1, true);
  const auto tokenizer = data::make_tokenizer(arguments.tokenizer);
  const auto source = data::open_dataset(arguments.dataset, arguments.input);
  auto& options = arguments.options;
  options.source = data::lower_case(arguments.dataset) + " " + fs::weakly_canonical(arguments.input).string();
  options.tokenizer = describe_tokenizer(arguments.tokenizer);
  Report report;
  const auto progress = data::tokenize_to_shards(*source, *tokenizer, options, std::ref(report));
  if (progress.bad_records > 0) spdlog::warn("{} bad records were skipped", with_thousands(progress.bad_records));
  if (progress.finished_shards == progress.shards) return kExitDone;
  spdlog::info("tokenize: stopped; the same command goes on");
  return kExitSavedRequeue;
}

}  // namespace titan
