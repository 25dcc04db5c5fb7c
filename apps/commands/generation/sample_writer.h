// Writes the samples of `titan-train generate`: prompts become tokens, and the model's tokens text.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/commands/generation/conversation.h"
#include "apps/commands/generation/log_probabilities.h"
#include "apps/commands/generation/ordered_output.h"
#include "apps/commands/generation/prompt_file.h"
#include "apps/commands/generation/result_file.h"
#include "apps/flags/generate_flags.h"
#include "apps/saved/trained_model.h"
#include "distributed/world.h"
#include "generate/continuation.h"
#include "generate/sampler.h"
#include "generate/stop_strings.h"
#include "generate/text_stream.h"

namespace titan {

// Rank 0 reads prompts, chooses tokens and writes. It calls write() or reply(), and end_others() at the end; the other
// ranks call follow(), and compute the same calls of the model.
class SampleWriter {
 public:
  // `flags` and `world` must outlive this. Throws DataError for a chat template that is missing or cannot be rendered.
  SampleWriter(const GenerateFlags& flags, TrainedModel model, dist::World& world);

  // Writes samples that continue the prompts, or answer them. Throws ConfigError before the first if one is too long.
  void write(const std::vector<GivenPrompt>& prompts);
  // Answers a message of the conversation, or continues a prompt.
  void reply(const std::string& line);
  void end_others();
  void follow();

  // Says on standard error how many tokens were written, and how fast.
  void report() const;

 private:
  struct Sample {
    std::string prompt, heading;
    std::vector<std::int32_t> ids;
  };
  // A sample that is being written.
  struct Growing {
    generate::Sampler sampler;
    generate::TextStream stream;
    generate::StopStrings stop;
    std::string text;
    std::optional<LogProbabilities> log_probabilities;  // with --logprobs
  };

  Growing& growing(std::size_t row);
  Sample sample_of(const std::string& prompt, std::vector<std::int32_t> ids, const std::string& where) const;
  Sample sample_of(const GivenPrompt& given);
  void run(std::vector<Sample> samples);
  void run_shared();
  std::vector<std::int64_t> pick(const at::Tensor& logits, std::span<const std::size_t> rows);
  bool take(std::size_t row, std::int32_t id);
  void finish(std::size_t row, const generate::Continuation& continuation);

  const GenerateFlags& flags_;
  TrainedModel model_;
  dist::World& world_;
  bool speaks_;       // this is rank 0
  bool to_terminal_;  // texts are printed to a terminal
  bool prints_json_;
  ResultFile result_;                         // on rank 0
  std::optional<Conversation> conversation_;  // with --chat
  std::uint64_t first_seed_;
  std::uint64_t num_samples_ = 0;  // those of the runs before
  std::int64_t num_tokens_ = 0;
  double seconds_ = 0;
  std::string last_text_;
  // The members below are about the current run.
  std::vector<Sample> samples_;
  std::vector<std::vector<std::int32_t>> ids_;  // of the samples' prompts
  std::map<std::size_t, Growing> growing_;
  std::int64_t num_cut_ = 0;  // texts that ended with the model's context
  std::optional<OrderedOutput> output_;
};

}  // namespace titan
