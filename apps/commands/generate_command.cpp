#include "apps/commands/generate_command.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>

#include "apps/commands/generation/prompt_file.h"
#include "apps/commands/generation/sample_writer.h"
#include "apps/common/piped_input.h"
#include "apps/flags/generate_flags.h"
#include "apps/saved/trained_model.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process/speaks.h"
#include "base/text.h"
#include "distributed/world.h"
#include "library/code_choice.h"
#include "library/run_or_report.h"
#include "train/setup.h"

namespace titan {
namespace {

constexpr const char* kGenerate = "titan-train generate";

[[noreturn]] void refuse(const std::string& message) {
  throw ConfigError(std::string(kGenerate) + ": error: " + message);
}

TrainedModelOptions model_options(const GenerateFlags& flags) {
  return {.command = kGenerate,
          .checkpoint = flags.checkpoint,
          .config = flags.config,
          .tokenizer = flags.tokenizer,
          .device = flags.device,
          .dtype = flags.dtype,
          .context = flags.context,
          .tensor_parallel = flags.tensor_parallel};
}

void check_arguments(const GenerateFlags& flags) {
  const int sources = flags.prompt.has_value() + !flags.prompts.empty() + flags.interactive;
  if (sources != 1)
    refuse("expected one of --prompt TEXT, --prompts FILE and --interactive, found " +
           std::string(sources == 0 ? "none" : "several"));
  if (flags.system && !flags.chat) refuse("--system goes with --chat");
  if (flags.chat && flags.interactive && flags.num > 1)
    refuse("--num: a conversation goes on after one answer; leave it out, or use --prompts");
  if (flags.interactive && !flags.out.empty())
    refuse("--out: a conversation is on the terminal; leave one of them out");
  if (flags.interactive && flags.batch > 1)
    refuse("--batch: the next prompt comes after a text; use --prompts with it, or leave it out");
  if (flags.logprobs && !flags.json && flags.out.empty())
    refuse("--logprobs: they are members of JSON objects; add --json or --out FILE");
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

// Returns the prompts of the command line; none with --interactive.
std::vector<GivenPrompt> given_prompts(const GenerateFlags& flags) {
  if (!flags.prompts.empty()) return read_prompt_file(flags.prompts, flags.chat);
  if (!flags.prompt) return {};
  return {GivenPrompt{.text = *flags.prompt == "-" ? prompt_of_standard_input() : *flags.prompt}};
}

void converse(SampleWriter& writer) {
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

// Writes on rank 0, and helps it on the others.
int write_together(const GenerateFlags& flags, const std::vector<GivenPrompt>& prompts, dist::World& world) {
  if (world.size() > 1) train::share_processors(world);
  SampleWriter writer(flags, load_trained_model(model_options(flags), world), world);
  // The other ranks wait while a user thinks.
  if (flags.interactive) world.set_timeout(std::chrono::hours(24 * 365));
  if (world.rank() > 0) {
    writer.follow();
  } else {
    flags.interactive ? converse(writer) : writer.write(prompts);
    writer.end_others();
    writer.report();
  }
  world.shutdown();
  return kExitDone;
}

}  // namespace

int run_generate(const std::vector<std::string>& args) {
  GenerateFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  log_to_stderr(kGenerate);
  const LaunchEnv launch = detect_launch();
  const bool speaks = speaks_for_job(launch);
  if (!speaks) spdlog::set_level(spdlog::level::err);  // rank 0 has the same warnings
  const auto prompts = report_once(speaks, [&] {
    check_arguments(flags);
    return speaks ? given_prompts(flags) : std::vector<GivenPrompt>();
  });
  choose_cpu_code(config::Cpu());  // a run's default
  auto world = report_once(speaks, [&] {
    return std::make_unique<dist::World>(launch, device_type_of(model_options(flags)), std::chrono::minutes(5));
  });
  return run_or_report(std::move(world), [&](dist::World& ranks) { return write_together(flags, prompts, ranks); });
}

}  // namespace titan
