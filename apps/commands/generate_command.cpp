#include "apps/commands/generate_command.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <random>

#include "apps/common/code_choice.h"
#include "apps/common/parse_command.h"
#include "apps/saved/trained_model.h"
#include "apps/common/print_result.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "data/text/code_points.h"
#include "data/tokenizer/token_json.h"
#include "generate/continuation.h"
#include "generate/sampler.h"
#include "generate/text_stream.h"

namespace titan {
namespace {

constexpr const char* kGenerate = "titan-train generate";

constexpr const char* kGenerateHelp =
    R"(Prints what a trained model writes after a prompt. PATH is
  a run's folder          outputs/debug (job.dump_folder), or outputs/debug/checkpoint: its newest complete step
  one step                outputs/debug/checkpoint/step-1000, ours, TorchTitan's or any DCP folder
  Hugging Face weights    a folder with *.safetensors and config.json
One process, one device. Model, tokenizer and length come from the checkpoint's own configuration.)";

constexpr const char* kGenerateFooter =
    R"(Examples:
  titan-train generate --checkpoint outputs/debug --prompt "def forward(" --max-tokens 64
  titan-train generate --checkpoint llama-hf --interactive --temperature 0.7 --top-p 0.9 --seed 1
  titan-train generate --checkpoint outputs/debug --prompts prompts.txt --temperature 0 --json > samples.jsonl
Exit codes: 0 done, 1 weights that are damaged or of another model, 2 wrong command line or input, 130 Ctrl-C.)";

struct GenerateArguments {
  TrainedModelOptions model;
  std::optional<std::string> prompt;
  std::string prompts;
  bool interactive = false;
  std::int64_t max_tokens = 128;
  std::int64_t num = 1;
  generate::Sampling sampling;
  std::optional<std::uint64_t> seed;
  bool json = false;
  bool quiet = false;
};

[[noreturn]] void refuse(const std::string& message) {
  throw ConfigError(std::string(kGenerate) + ": error: " + message);
}

// CLI11 words a wrong number as a conversion that failed; here an option says what it expects.
template <typename T>
T number(const std::string& option, const std::string& text, T least, T most, const std::string& expected) {
  T value{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault == std::errc() && end == text.data() + text.size() && value >= least && value <= most) return value;
  refuse(option + ": expected " + expected + "; found \"" + text + "\"");
}

template <typename T>
T at_least(const std::string& option, const std::string& text, T least) {
  return number<T>(option, text, least, std::numeric_limits<T>::max(), "an integer, at least " + std::to_string(least));
}

void add_options(CLI::App& app, GenerateArguments& arguments) {
  const auto add_number = [&app](const std::string& name, const std::string& doc, const std::string& type,
                                 std::function<void(const std::string&)> take) {
    app.add_option_function<std::string>(name, std::move(take), doc)->type_name(type);
  };
  app.add_option("--checkpoint", arguments.model.checkpoint, "whose weights to use, see above")
      ->required()
      ->type_name("PATH");
  app.add_option("--prompt", arguments.prompt, "what the text begins with; - reads it from standard input")
      ->type_name("TEXT");
  app.add_option("--prompts", arguments.prompts, "a file of prompts, one a line; empty lines are passed over")
      ->type_name("FILE");
  app.add_flag("--interactive", arguments.interactive, "read prompts from the terminal, one a line, until Ctrl-D");
  add_number("--max-tokens", "tokens to write at most (default: 128)", "N",
             [&](const auto& text) { arguments.max_tokens = at_least<std::int64_t>("--max-tokens", text, 1); });
  add_number("--num", "samples for each prompt (default: 1)", "N",
             [&](const auto& text) { arguments.num = at_least<std::int64_t>("--num", text, 1); });
  add_number("--temperature", "0: always the likeliest token; 1: as the model says (default: 1)", "T",
             [&](const auto& text) {
               arguments.sampling.temperature =
                   number("--temperature", text, 0.0, std::numeric_limits<double>::max(), "a number, at least 0");
             });
  add_number("--top-k", "draw among the K likeliest tokens only", "K",
             [&](const auto& text) { arguments.sampling.top_k = at_least<std::int64_t>("--top-k", text, 1); });
  add_number("--top-p", "draw among the likeliest tokens that are P of all together", "P", [&](const auto& text) {
    arguments.sampling.top_p =
        number("--top-p", text, std::numeric_limits<double>::min(), 1.0, "a number above 0, up to 1");
  });
  add_number("--seed", "repeats what was drawn; each further sample takes the next seed (default: another every time)",
             "S", [&](const auto& text) { arguments.seed = at_least<std::uint64_t>("--seed", text, 0); });
  app.add_option("--config", arguments.model.config, "job.toml of a checkpoint that holds none")->type_name("FILE");
  app.add_option("--tokenizer", arguments.model.tokenizer, "folder of the tokenizer, in place of the configuration's")
      ->type_name("FOLDER");
  add_number("--context", "tokens of prompt and text together (default: what the model was trained with)", "N",
             [&](const auto& text) { arguments.model.context = at_least<std::int64_t>("--context", text, 2); });
  app.add_option("--device", arguments.model.device, "auto: a GPU when there is one")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--dtype", arguments.model.dtype,
                 "of the weights; auto: bfloat16 when they were saved as such or are on a GPU, else float32")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}));
  app.add_flag("--json", arguments.json,
               "one JSON object for each sample: prompt, text, the ids of both, and why it ended");
  app.add_flag("--quiet", arguments.quiet, "no word about speed and seed on standard error");
}

void check_arguments(const GenerateArguments& arguments) {
  const int sources = arguments.prompt.has_value() + !arguments.prompts.empty() + arguments.interactive;
  if (sources != 1)
    refuse("expected one of --prompt TEXT, --prompts FILE and --interactive, found " +
           std::string(sources == 0 ? "none" : "several"));
  if (arguments.sampling.temperature > 0) return;
  std::vector<std::string> idle;
  if (arguments.sampling.top_k) idle.emplace_back("--top-k");
  if (arguments.sampling.top_p) idle.emplace_back("--top-p");
  if (arguments.seed) idle.emplace_back("--seed");
  if (arguments.num > 1) idle.emplace_back("--num");
  if (!idle.empty())
    refuse("--temperature 0 always takes the likeliest token, which leaves nothing to draw: leave out " +
           join(idle, ", ") + ", or set another temperature");
}

// Whatever a model writes, the terminal stays as it is: control characters but line feed and tab are shown as U+FFFD.
std::string for_terminal(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool is_control = (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    is_control ? out.append("\xef\xbf\xbd") : out.append(1, c);
  }
  return out;
}

const char* end_name(generate::End end) {
  switch (end) {
    case generate::End::kStopToken:
      return "stop_token";
    case generate::End::kMaxTokens:
      return "max_tokens";
    case generate::End::kContext:
      return "context";
  }
  return "";
}

// As data, prompts that are not UTF-8 are read with U+FFFD in place of what is none.
std::string valid_text(const std::string& text) {
  const data::ValidText valid(text);
  if (valid.view() != text) spdlog::warn("the prompt is not valid UTF-8: what is not counts as U+FFFD");
  return std::string(valid.view());
}

// Writes samples of prompts, and counts.
class Writer {
 public:
  Writer(const GenerateArguments& arguments, TrainedModel model)
      : arguments_(arguments),
        model_(std::move(model)),
        first_seed_(arguments.seed.value_or(std::random_device{}())),
        to_terminal_(isatty(STDOUT_FILENO) == 1) {}

  // `heading`: where texts follow each other, printed before each.
  void write(const std::string& given, const std::string& heading = "") {
    const std::string prompt = valid_text(given);
    std::vector<std::int32_t> ids;
    model_.tokenizer->encode_marked(prompt, {.bos = true, .eos = false}, ids);
    check_length(ids.size());
    for (std::int64_t i = 0; i < arguments_.num; ++i) write_sample(prompt, ids, heading);
  }

  void report() const {
    if (arguments_.quiet || num_tokens_ == 0) return;
    std::fprintf(stderr, "%s: %lld tokens in %.2f s, %.1f tokens/s (%s, %s, %s)%s\n", kGenerate,
                 static_cast<long long>(num_tokens_), seconds_, static_cast<double>(num_tokens_) / seconds_,
                 model_.folder.c_str(), model_.device.is_cpu() ? "CPU" : "GPU",
                 model_.dtype == c10::ScalarType::BFloat16 ? "bfloat16" : "float32",
                 arguments_.sampling.temperature == 0 || arguments_.seed
                     ? ""
                     : ("; --seed " + std::to_string(first_seed_) + " repeats them").c_str());
  }

 private:
  void check_length(std::size_t num_tokens) const {
    if (num_tokens == 0) refuse("the prompt has no token, and the tokenizer no BOS to begin with; give some text");
    if (static_cast<std::int64_t>(num_tokens) < model_.context) return;
    refuse("the prompt has " + with_thousands(static_cast<std::int64_t>(num_tokens)) +
           " tokens, and the model takes sequences of " + with_thousands(model_.context) +
           " with what it writes; shorten the prompt, or see --context");
  }

  void write_sample(const std::string& prompt, const std::vector<std::int32_t>& ids, const std::string& heading) {
    const auto begin = std::chrono::steady_clock::now();
    generate::Sampler sampler(arguments_.sampling, first_seed_ + num_samples_++);
    generate::TextStream stream([&](auto some) { return model_.tokenizer->decode_text(some); }, ids);
    std::string text;
    const auto put = [&](const std::string& piece) {
      text += piece;
      if (!arguments_.json && !piece.empty()) print_result(to_terminal_ ? for_terminal(piece) : piece);
    };
    if (!arguments_.json) print_result(heading);
    const auto written = generate::continue_tokens(
        *model_.model, model_.device, ids, {arguments_.max_tokens, model_.context, model_.stop_ids},
        [&](const at::Tensor& logits) { return sampler.pick(logits); }, [&](std::int32_t id) { put(stream.add(id)); });
    put(stream.finish());
    num_tokens_ += static_cast<std::int64_t>(written.ids.size());
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (arguments_.json) {
      print_result("{\"prompt\":" + data::string_to_json(prompt) + ",\"text\":" + data::string_to_json(text) +
                   ",\"prompt_ids\":" + data::ids_to_json(ids) + ",\"ids\":" + data::ids_to_json(written.ids) +
                   ",\"end\":\"" + end_name(written.end) + "\"}\n");
    } else {
      print_result("\n");
    }
    if (written.end == generate::End::kContext)
      spdlog::warn("the text ends where the model's context does, after {} tokens of prompt and text; see --context",
                   model_.context);
  }

  const GenerateArguments& arguments_;
  TrainedModel model_;
  std::uint64_t first_seed_;
  bool to_terminal_;
  std::uint64_t num_samples_ = 0;
  std::int64_t num_tokens_ = 0;
  double seconds_ = 0;
};

void without_line_end(std::string& line) {
  if (line.ends_with('\r')) line.pop_back();
}

// Without the line end that echo and editors put last: a model would go on in the next line.
std::string prompt_of_standard_input() {
  std::string text = read_standard_input();
  if (text.ends_with('\n')) text.pop_back();
  without_line_end(text);
  return text;
}

std::vector<std::string> read_prompts(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    refuse("--prompts: expected a file with one prompt a line; there is none at " + file);
  std::vector<std::string> prompts;
  for (std::string line : split(read_file(file), '\n')) {
    without_line_end(line);
    if (!line.empty()) prompts.push_back(std::move(line));
  }
  if (prompts.empty()) refuse("--prompts: " + file + " holds no prompt: all its lines are empty");
  return prompts;
}

void converse(Writer& writer) {
  const bool asks = isatty(STDIN_FILENO) == 1;
  std::string line;
  for (;;) {
    if (asks) std::fputs("> ", stderr);
    if (!std::getline(std::cin, line)) break;
    without_line_end(line);
    if (line.empty()) continue;
    try {
      writer.write(line);
    } catch (const ConfigError& error) {  // too long: another may be shorter
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  if (asks) std::fputs("\n", stderr);
}

}  // namespace

int run_generate(const std::vector<std::string>& args) {
  CLI::App app(kGenerateHelp, kGenerate);
  app.footer(kGenerateFooter);
  GenerateArguments arguments;
  arguments.model.command = kGenerate;
  add_options(app, arguments);
  if (const auto code = parse_command(app, args)) return *code;
  log_to_stderr(kGenerate);
  check_arguments(arguments);
  std::vector<std::string> prompts;
  if (!arguments.prompts.empty()) prompts = read_prompts(arguments.prompts);
  if (arguments.prompt) prompts = {*arguments.prompt == "-" ? prompt_of_standard_input() : *arguments.prompt};
  choose_cpu_code(config::Cpu());  // as a run does by default
  Writer writer(arguments, load_trained_model(arguments.model));
  for (const std::string& prompt : prompts)
    writer.write(prompt, prompts.size() > 1 || arguments.num > 1 ? "> " + prompt + "\n" : "");
  if (arguments.interactive) converse(writer);
  writer.report();
  return kExitDone;
}

}  // namespace titan
