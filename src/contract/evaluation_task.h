// A task that a model is scored on: texts whose log-likelihood it gives, and the scores that follow from them. Made in
// data/tasks/; the engine has no tokenizer and knows no task.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace titan {

// A text whose last tokens are scored: its log-likelihood is the sum of the log-probabilities of the last `num_scored`
// tokens, each after all tokens before it.
struct ScoredText {
  std::vector<std::int32_t> tokens;  // at least 2, at most one more than the longest sequence of the model
  std::int64_t num_scored = 0;       // 1 to tokens.size() - 1
};

// One number about a model, such as acc.
struct Score {
  std::string name;                  // "acc_norm"
  double value = 0;                  // a share from 0 to 1, a perplexity, or bits
  std::optional<double> error = {};  // standard error of the value; nullopt if there is none
};

struct EvaluationTask {
  std::string name;            // unique in a run: "arc_easy"
  std::int64_t num_items = 0;  // questions or documents
  std::int64_t num_cut = 0;    // texts that lost tokens from their left end, because they are too long for the model
  std::vector<ScoredText> texts;
  // Returns the scores, always the same names, from the log-likelihoods of `texts` in their order, which are natural
  // logarithms.
  std::function<std::vector<Score>(std::span<const double> log_likelihoods)> scores = {};
};

}  // namespace titan
