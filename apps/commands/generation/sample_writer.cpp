#include "apps/commands/generation/sample_writer.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <random>

#include "base/error.h"
#include "base/text.h"
#include "data/conversations/stop_tokens.h"
#include "data/text/code_points.h"
#include "data/tokenizer/token_json.h"

namespace titan {
namespace {

constexpr const char* kCommand = "titan-train generate";

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
std::string valid_prompt(const std::string& text) {
  const data::ValidText valid(text);
  if (valid.view() != text) spdlog::warn("the prompt is not valid UTF-8; invalid bytes are replaced by U+FFFD");
  return std::string(valid.view());
}

// Turns the tokens of prompts into bytes for the other ranks, and back. No prompt is empty.
std::string to_message(const std::vector<std::vector<std::int32_t>>& prompts) {
  std::vector<std::string> lines;
  for (const auto& ids : prompts) {
    std::vector<std::string> words;
    for (const std::int32_t id : ids) words.push_back(std::to_string(id));
    lines.push_back(join(words, " "));
  }
  return join(lines, "\n");
}

std::vector<std::vector<std::int32_t>> from_message(const std::string& message) {
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::string& line : split(message, '\n')) {
    prompts.emplace_back();
    for (const std::string& word : split(line, ' ')) prompts.back().push_back(std::stoi(word));
  }
  return prompts;
}

}  // namespace

SampleWriter::SampleWriter(const GenerateFlags& flags, TrainedModel model, dist::World& world)
    : flags_(flags),
      model_(std::move(model)),
      world_(world),
      speaks_(world.rank() == 0),
      to_terminal_(flags.out.empty() && isatty(STDOUT_FILENO) == 1),
      prints_json_(flags.json || !flags.out.empty()),
      result_(speaks_ ? flags.out : "", std::string(kCommand) + ": error: --out "),
      first_seed_(flags.seed.value_or(std::random_device{}())) {
  if (flags.logprobs.value_or(0) > model_.vocab_size)
    throw ConfigError(std::string(kCommand) + ": error: --logprobs: the model has " +
                      with_thousands(model_.vocab_size) + " tokens, found " + std::to_string(*flags.logprobs));
  if (!flags.chat) return;
  conversation_.emplace(model_, flags.system);
  if (const auto end = data::end_of_turn(conversation_->format(), *model_.tokenizer)) model_.stop_ids.push_back(*end);
}

SampleWriter::Sample SampleWriter::sample_of(const std::string& prompt, std::vector<std::int32_t> ids,
                                             const std::string& where) const {
  const std::string begin = std::string(kCommand) + ": error: " + (where.empty() ? "" : where + ": ");
  if (ids.empty())
    throw ConfigError(begin + "the prompt has no token, and the tokenizer no BOS to begin with; give some text");
  const auto length = static_cast<std::int64_t>(ids.size());
  if (length >= model_.context)
    throw ConfigError(begin + "the prompt has " + with_thousands(length) +
                      " tokens, and the model takes sequences of " + with_thousands(model_.context) +
                      " with what it writes; shorten the prompt, or see --context");
  return {prompt, "", std::move(ids)};
}

SampleWriter::Sample SampleWriter::sample_of(const GivenPrompt& given) {
  std::vector<std::int32_t> ids;
  if (!conversation_) {
    const std::string prompt = valid_prompt(given.text);
    model_.tokenizer->encode_marked(prompt, {.bos = true, .eos = false}, ids);
    return sample_of(prompt, std::move(ids), given.where);
  }
  conversation_->restart();
  const std::string prompt =
      given.messages.empty() ? conversation_->ask(valid_prompt(given.text)) : conversation_->continued(given.messages);
  model_.tokenizer->encode_rendered(prompt, ids);
  return sample_of(prompt, std::move(ids), given.where);
}

void SampleWriter::write(const std::vector<GivenPrompt>& prompts) {
  std::vector<Sample> samples;
  const bool is_one = prompts.size() == 1 && flags_.num == 1;
  for (const GivenPrompt& given : prompts) {
    Sample sample = sample_of(given);
    if (!is_one) sample.heading = "> " + (given.messages.empty() ? given.text : sample.prompt) + "\n";
    samples.insert(samples.end(), static_cast<std::size_t>(flags_.num), sample);
  }
  run(std::move(samples));
}

void SampleWriter::reply(const std::string& line) {
  if (!conversation_) {
    const Sample sample = sample_of(GivenPrompt{.text = line});
    return run(std::vector<Sample>(static_cast<std::size_t>(flags_.num), sample));
  }
  if (line == "/new") return conversation_->restart();
  const std::string prompt = conversation_->ask(valid_prompt(line));
  std::vector<std::int32_t> ids;
  model_.tokenizer->encode_rendered(prompt, ids);
  try {
    samples_ = {sample_of(prompt, std::move(ids), "")};
  } catch (const ConfigError&) {
    conversation_->withdraw();
    throw;
  }
  run(std::move(samples_));
  conversation_->answered(last_text_);
}

void SampleWriter::run(std::vector<Sample> samples) {
  const auto begin = std::chrono::steady_clock::now();
  samples_ = std::move(samples);
  ids_.clear();
  for (Sample& sample : samples_) ids_.push_back(std::move(sample.ids));
  if (world_.size() > 1) world_.group().broadcast_bytes(to_message(ids_), 0);
  output_.emplace([&](const std::string& text) { result_.write(to_terminal_ ? for_terminal(text) : text); });
  num_cut_ = 0;
  run_shared();
  if (num_cut_ > 0)
    spdlog::warn("{} where the model's context does, after {} tokens of prompt and text; see --context",
                 num_cut_ == 1 ? "the text ends" : with_thousands(num_cut_) + " texts end", model_.context);
  num_samples_ += samples_.size();
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void SampleWriter::end_others() {
  if (world_.size() > 1) world_.group().broadcast_bytes("", 0);
}

void SampleWriter::follow() {
  for (;;) {
    const std::string message = world_.group().broadcast_bytes("", 0);
    if (message.empty()) return;
    ids_ = from_message(message);
    run_shared();
  }
}

// The part of a run that every rank takes.
void SampleWriter::run_shared() {
  growing_.clear();
  generate::RowCalls calls;
  calls.pick = [&](const at::Tensor& logits, std::span<const std::size_t> rows) { return pick(logits, rows); };
  calls.on_token = [&](std::size_t row, std::int32_t id) { return take(row, id); };
  calls.on_end = [&](std::size_t row, const generate::Continuation& continuation) { finish(row, continuation); };
  generate::continue_rows(*model_.model, ids_, static_cast<std::size_t>(flags_.batch),
                          {flags_.max_tokens, model_.context, model_.stop_ids}, calls);
}

SampleWriter::Growing& SampleWriter::growing(std::size_t row) {
  if (const auto found = growing_.find(row); found != growing_.end()) return found->second;
  const auto decode = [&](std::span<const std::int32_t> ids) { return model_.tokenizer->decode_text(ids); };
  const generate::Sampling sampling = {flags_.temperature, flags_.top_k, flags_.top_p};
  Growing made = {generate::Sampler(sampling, first_seed_ + num_samples_ + row),
                  generate::TextStream(decode, ids_[row]), generate::StopStrings(flags_.stop), "", std::nullopt};
  if (flags_.logprobs) made.log_probabilities.emplace(*flags_.logprobs);
  if (speaks_ && !prints_json_) output_->add(row, samples_[row].heading);
  return growing_.emplace(row, std::move(made)).first->second;
}

// Returns rank 0's choice on all ranks, since processors that round differently must not diverge.
std::vector<std::int64_t> SampleWriter::pick(const at::Tensor& logits, std::span<const std::size_t> rows) {
  std::vector<std::int64_t> ids(rows.size());
  for (std::size_t i = 0; speaks_ && i < rows.size(); ++i) {
    Growing& sample = growing(rows[i]);
    const at::Tensor of_row = logits[static_cast<std::int64_t>(i)];
    ids[i] = sample.sampler.pick(of_row);
    if (sample.log_probabilities) sample.log_probabilities->add(of_row, ids[i]);
  }
  if (world_.size() > 1)
    world_.group().broadcast(at::from_blob(ids.data(), {static_cast<std::int64_t>(ids.size())}, at::kLong), 0).wait();
  return ids;
}

bool SampleWriter::take(std::size_t row, std::int32_t id) {
  Growing& sample = growing(row);
  const std::string piece = sample.stop.add(sample.stream.add(id));
  sample.text += piece;
  if (speaks_ && !prints_json_ && !piece.empty()) output_->add(row, piece);
  return !sample.stop.found();
}

void SampleWriter::finish(std::size_t row, const generate::Continuation& continuation) {
  Growing& sample = growing(row);
  const std::string rest = sample.stop.add(sample.stream.finish()) + sample.stop.finish();
  last_text_ = sample.text + rest;
  const std::string scores = sample.log_probabilities ? "," + sample.log_probabilities->json_members() : "";
  growing_.erase(row);
  if (!speaks_) return;
  num_tokens_ += static_cast<std::int64_t>(continuation.ids.size());
  output_->add(row, prints_json_ ? "{\"prompt\":" + data::string_to_json(samples_[row].prompt) +
                                       ",\"text\":" + data::string_to_json(last_text_) +
                                       ",\"prompt_ids\":" + data::ids_to_json(ids_[row]) +
                                       ",\"ids\":" + data::ids_to_json(continuation.ids) + ",\"end\":\"" +
                                       end_name(continuation.end) + "\"" + scores + "}\n"
                                 : rest + "\n");
  output_->end(row);
  if (continuation.end == generate::End::kContext) ++num_cut_;
}

void SampleWriter::report() const {
  if (flags_.quiet || num_tokens_ == 0) return;
  const std::string split = world_.size() == 1
                                ? ""
                                : "; " + with_thousands(model_.num_parameters_here) + " of " +
                                      with_thousands(model_.num_parameters) + " parameters on this one of " +
                                      std::to_string(world_.size()) + " ranks";
  std::fprintf(stderr, "%s: %lld tokens in %.2f s, %.1f tokens/s (%s, %s, %s)%s%s\n", kCommand,
               static_cast<long long>(num_tokens_), seconds_, static_cast<double>(num_tokens_) / seconds_,
               model_.folder.c_str(), model_.device.is_cpu() ? "CPU" : "GPU",
               model_.dtype == c10::ScalarType::BFloat16 ? "bfloat16" : "float32", split.c_str(),
               flags_.temperature == 0 || flags_.seed
                   ? ""
                   : ("; --seed " + std::to_string(first_seed_) + " repeats them").c_str());
}

}  // namespace titan
