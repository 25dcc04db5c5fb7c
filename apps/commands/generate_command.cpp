#include "apps/commands/generate_command.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <random>

#include "apps/commands/conversation.h"
#include "apps/common/piped_input.h"
#include "apps/common/print_result.h"
#include "apps/flags/generate_flags.h"
#include "apps/saved/trained_model.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "data/text/code_points.h"
#include "data/tokenizer/token_json.h"
#include "generate/continuation.h"
#include "generate/sampler.h"
#include "generate/stop_strings.h"
#include "generate/text_stream.h"
#include "library/code_choice.h"

namespace titan {
namespace {

constexpr const char* kGenerate = "titan-train generate";

[[noreturn]] void refuse(const std::string& message) {
  throw ConfigError(std::string(kGenerate) + ": error: " + message);
}

TrainedModelOptions model_options(const GenerateFlags& flags) {
  return {kGenerate, flags.checkpoint, flags.config, flags.tokenizer, flags.device, flags.dtype, flags.context};
}

generate::Sampling sampling(const GenerateFlags& flags) { return {flags.temperature, flags.top_k, flags.top_p}; }

void check_arguments(const GenerateFlags& flags) {
  const int sources = flags.prompt.has_value() + !flags.prompts.empty() + flags.interactive;
  if (sources != 1)
    refuse("expected one of --prompt TEXT, --prompts FILE and --interactive, found " +
           std::string(sources == 0 ? "none" : "several"));
  if (flags.system && !flags.chat) refuse("--system goes with --chat");
  if (flags.chat && flags.interactive && flags.num > 1)
    refuse("--num: a conversation goes on after one answer; leave it out, or use --prompts");
  if (std::ranges::count(flags.stop, "") > 0) refuse("--stop: expected a text, found an empty one");
  if (flags.temperature > 0) return;
  std::vector<std::string> idle;
  if (flags.top_k) idle.emplace_back("--top-k");
  if (flags.top_p) idle.emplace_back("--top-p");
  if (flags.seed) idle.emplace_back("--seed");
  if (flags.num > 1) idle.emplace_back("--num");
  if (!idle.empty())
    refuse("--temperature 0 always takes the likeliest token, which leaves nothing to draw: leave out " +
           join(idle, ", ") + ", or set another temperature");
}

// Returns text that cannot change the terminal: control characters other than line feed and tab become U+FFFD.
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
    case generate::End::kCaller:
      return "stop_string";
  }
  return "";
}

// Returns the prompt with invalid UTF-8 replaced by U+FFFD, as for training data.
std::string valid_text(const std::string& text) {
  const data::ValidText valid(text);
  if (valid.view() != text) spdlog::warn("the prompt is not valid UTF-8; invalid bytes are replaced by U+FFFD");
  return std::string(valid.view());
}

// Writes samples of prompts and counts tokens.
class Writer {
 public:
  Writer(const GenerateFlags& flags, TrainedModel model)
      : flags_(flags),
        model_(std::move(model)),
        first_seed_(flags.seed.value_or(std::random_device{}())),
        to_terminal_(isatty(STDOUT_FILENO) == 1) {
    if (!flags.chat) return;
    conversation_.emplace(model_, flags.system);
    if (const auto end = conversation_->end_of_turn(*model_.tokenizer)) model_.stop_ids.push_back(*end);
  }

  // Writes samples that continue a prompt, or answer it. `heading` is printed before each sample, to separate several
  // texts.
  void write(const std::string& given, const std::string& heading = "") {
    if (!conversation_) return continue_prompt(given, heading);
    conversation_->restart();
    answer(given, heading);
  }

  // Answers a message of the conversation, or continues a prompt.
  void reply(const std::string& line) {
    if (!conversation_) return continue_prompt(line, "");
    line == "/new" ? conversation_->restart() : answer(line, "");
  }

  void report() const {
    if (flags_.quiet || num_tokens_ == 0) return;
    std::fprintf(stderr, "%s: %lld tokens in %.2f s, %.1f tokens/s (%s, %s, %s)%s\n", kGenerate,
                 static_cast<long long>(num_tokens_), seconds_, static_cast<double>(num_tokens_) / seconds_,
                 model_.folder.c_str(), model_.device.is_cpu() ? "CPU" : "GPU",
                 model_.dtype == c10::ScalarType::BFloat16 ? "bfloat16" : "float32",
                 flags_.temperature == 0 || flags_.seed
                     ? ""
                     : ("; --seed " + std::to_string(first_seed_) + " repeats them").c_str());
  }

 private:
  void continue_prompt(const std::string& given, const std::string& heading) {
    const std::string prompt = valid_text(given);
    std::vector<std::int32_t> ids;
    model_.tokenizer->encode_marked(prompt, {.bos = true, .eos = false}, ids);
    check_length(ids.size());
    for (std::int64_t i = 0; i < flags_.num; ++i) write_sample(prompt, ids, heading);
  }

  void answer(const std::string& message, const std::string& heading) {
    const std::string prompt = conversation_->ask(valid_text(message));
    std::vector<std::int32_t> ids;
    model_.tokenizer->encode_rendered(prompt, ids);
    try {
      check_length(ids.size());
    } catch (const ConfigError&) {
      conversation_->withdraw();
      throw;
    }
    std::string text;
    for (std::int64_t i = 0; i < flags_.num; ++i) text = write_sample(prompt, ids, heading);
    conversation_->answered(text);
  }

  void check_length(std::size_t num_tokens) const {
    if (num_tokens == 0) refuse("the prompt has no token, and the tokenizer no BOS to begin with; give some text");
    if (static_cast<std::int64_t>(num_tokens) < model_.context) return;
    refuse("the prompt has " + with_thousands(static_cast<std::int64_t>(num_tokens)) +
           " tokens, and the model takes sequences of " + with_thousands(model_.context) +
           " with what it writes; shorten the prompt, or see --context");
  }

  // Returns the text of the sample.
  std::string write_sample(const std::string& prompt, const std::vector<std::int32_t>& ids,
                           const std::string& heading) {
    const auto begin = std::chrono::steady_clock::now();
    generate::Sampler sampler(sampling(flags_), first_seed_ + num_samples_++);
    generate::TextStream stream([&](auto some) { return model_.tokenizer->decode_text(some); }, ids);
    generate::StopStrings stop(flags_.stop);
    std::string text;
    const auto put = [&](const std::string& piece) {
      text += piece;
      if (!flags_.json && !piece.empty()) print_result(to_terminal_ ? for_terminal(piece) : piece);
    };
    if (!flags_.json) print_result(heading);
    const auto written = generate::continue_tokens(
        *model_.model, ids, {flags_.max_tokens, model_.context, model_.stop_ids},
        [&](const at::Tensor& logits) { return sampler.pick(logits); },
        [&](std::int32_t id) {
          put(stop.add(stream.add(id)));
          return !stop.found();
        });
    put(stop.add(stream.finish()));
    put(stop.finish());
    num_tokens_ += static_cast<std::int64_t>(written.ids.size());
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (flags_.json) {
      print_result("{\"prompt\":" + data::string_to_json(prompt) + ",\"text\":" + data::string_to_json(text) +
                   ",\"prompt_ids\":" + data::ids_to_json(ids) + ",\"ids\":" + data::ids_to_json(written.ids) +
                   ",\"end\":\"" + end_name(written.end) + "\"}\n");
    } else {
      print_result("\n");
    }
    if (written.end == generate::End::kContext)
      spdlog::warn("the text ends where the model's context does, after {} tokens of prompt and text; see --context",
                   model_.context);
    return text;
  }

  const GenerateFlags& flags_;
  TrainedModel model_;
  std::optional<Conversation> conversation_;  // with --chat
  std::uint64_t first_seed_;
  bool to_terminal_;
  std::uint64_t num_samples_ = 0;
  std::int64_t num_tokens_ = 0;
  double seconds_ = 0;
};

void without_line_end(std::string& line) {
  if (line.ends_with('\r')) line.pop_back();
}

// Returns standard input without the final line end that echo and editors add, so that the text continues the line.
std::string prompt_of_standard_input() {
  std::string text = read_standard_input();
  if (text.ends_with('\n')) text.pop_back();
  without_line_end(text);
  return text;
}

std::vector<std::string> read_prompts(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    refuse("--prompts: expected a file with one prompt per line; there is none at " + file);
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
      writer.reply(line);
    } catch (const ConfigError& error) {  // too long; the next prompt may be shorter
      std::fprintf(stderr, "%s\n", error.what());
    } catch (const DataError& error) {  // the chat template refuses it
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  if (asks) std::fputs("\n", stderr);
}

}  // namespace

int run_generate(const std::vector<std::string>& args) {
  GenerateFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  log_to_stderr(kGenerate);
  check_arguments(flags);
  std::vector<std::string> prompts;
  if (!flags.prompts.empty()) prompts = read_prompts(flags.prompts);
  if (flags.prompt) prompts = {*flags.prompt == "-" ? prompt_of_standard_input() : *flags.prompt};
  choose_cpu_code(config::Cpu());  // a run's default
  Writer writer(flags, load_trained_model(model_options(flags)));
  for (const std::string& prompt : prompts)
    writer.write(prompt, prompts.size() > 1 || flags.num > 1 ? "> " + prompt + "\n" : "");
  if (flags.interactive) converse(writer);
  writer.report();
  return kExitDone;
}

}  // namespace titan
