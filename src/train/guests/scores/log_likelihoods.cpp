#include "train/guests/scores/log_likelihoods.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "nn/ops/cross_entropy.h"
#include "nn/ops/fused_attention.h"

namespace titan::train {
namespace {

// Bytes per logit: the model's in up to 32 bits, and two copies in float32, of which one is the log-probabilities.
constexpr std::int64_t kBytesOfLogit = 12;

std::int64_t length_of(const ScoredText& text) { return static_cast<std::int64_t>(text.tokens.size()) - 1; }

// While alive, makes the model compute the logits of N tokens only, [1, N, V]: those at `positions` of its rows, laid
// end to end.
class SomePositions {
 public:
  SomePositions(LanguageModel& model, at::Tensor positions) : output_(model.output()) {
    output_.add_pre_hook([positions = std::move(positions)](nn::Module&, nn::Tensors& inputs) {
      inputs[0] = inputs[0].flatten(0, 1).index_select(0, positions).unsqueeze(0);
    });
  }
  ~SomePositions() { output_.pop_pre_hook(); }
  SomePositions(const SomePositions&) = delete;
  SomePositions& operator=(const SomePositions&) = delete;

 private:
  nn::Module& output_;
};

}  // namespace

LogLikelihoods::LogLikelihoods(std::span<const ScoredText> texts, ScoringOptions options)
    : texts_(texts), options_(options) {
  for (const ScoredText& text : texts)
    TITAN_CHECK(text.num_scored > 0 && text.num_scored <= length_of(text),
                std::to_string(text.num_scored) + " scored tokens of " + std::to_string(text.tokens.size()));
  plan(unique_inputs());
}

std::vector<LogLikelihoods::Input> LogLikelihoods::unique_inputs() const {
  std::vector<Input> inputs;
  std::map<std::span<const std::int32_t>, std::size_t,
           decltype([](auto a, auto b) { return std::ranges::lexicographical_compare(a, b); })>
      known;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const ScoredText& text = texts_[i];
    const auto tokens = std::span(text.tokens).first(text.tokens.size() - 1);
    const auto [found, is_new] = known.emplace(tokens, inputs.size());
    if (is_new) inputs.push_back({.texts = {}, .length = length_of(text)});
    Input& input = inputs[found->second];
    input.texts.push_back(i);
    input.num_scored = std::max(input.num_scored, text.num_scored);
  }
  return inputs;
}

std::int64_t LogLikelihoods::bytes_of_logits(std::int64_t num_tokens) const {
  return num_tokens * options_.vocab_size * kBytesOfLogit;
}

// The longest come first: what does not fit into memory fails at once.
void LogLikelihoods::plan(std::vector<Input> inputs) {
  std::ranges::stable_sort(inputs, [](const Input& a, const Input& b) { return a.length > b.length; });
  std::int64_t num_scored = 0;  // of the last call
  bool is_open = false;         // the last call may get further inputs
  for (Input& input : inputs) {
    if (bytes_of_logits(input.num_scored) > options_.logits_bytes) {
      for (const std::size_t text : input.texts)
        calls_.push_back({.inputs = {{{text}, input.length, texts_[text].num_scored}}, .is_too_large = true});
      is_open = false;
      continue;
    }
    is_open = is_open && static_cast<std::int64_t>(calls_.back().inputs.size()) < options_.batch_size &&
              bytes_of_logits(num_scored + input.num_scored) <= options_.logits_bytes;
    if (!is_open) calls_.emplace_back(), num_scored = 0;
    is_open = true;
    num_scored += input.num_scored;
    calls_.back().inputs.push_back(std::move(input));
  }
}

std::optional<std::vector<double>> LogLikelihoods::compute(LanguageModel& model, at::Device device,
                                                           dist::ProcessGroup& group,
                                                           const std::function<bool()>& stop) const {
  const auto ranks = static_cast<std::size_t>(group.size()), rank = static_cast<std::size_t>(group.rank());
  std::vector<double> sums(texts_.size(), 0), unused(texts_.size(), 0);
  for (std::size_t begin = 0; begin < calls_.size(); begin += ranks) {
    const std::size_t mine = begin + rank;
    // A rank without a call repeats the shortest one and drops the result.
    if (mine < calls_.size()) {
      run(calls_[mine], model, device, sums);
    } else {
      run(calls_.back(), model, device, unused);
    }
    if (stop()) return std::nullopt;
  }
  // One rank has each value, and the others add 0, which changes no bit.
  if (group.size() > 1) {
    const auto all = at::from_blob(sums.data(), {std::ssize(sums)}, at::kDouble);
    group.all_reduce(all, dist::ReduceOp::kSum).wait();
  }
  return sums;
}

at::Tensor LogLikelihoods::tokens_of(const Call& call) const {
  std::int64_t length = 0;
  for (const Input& input : call.inputs) length = std::max(length, input.length);
  const std::int64_t multiple = options_.length_multiple;
  length = (length + multiple - 1) / multiple * multiple;
  const auto rows = static_cast<std::int64_t>(call.inputs.size());
  auto tokens = at::zeros({rows, length}, at::kLong);
  for (std::int64_t row = 0; row < rows; ++row) {
    const Input& input = call.inputs[static_cast<std::size_t>(row)];
    const ScoredText& text = texts_[input.texts.front()];
    std::copy_n(text.tokens.begin(), input.length, tokens.mutable_data_ptr<std::int64_t>() + row * length);
  }
  return tokens;
}

void LogLikelihoods::run(const Call& call, LanguageModel& model, at::Device device, std::vector<double>& sums) const {
  const nn::AttentionWithoutPlans any_length(device);  // each call has its own
  const at::Tensor tokens = tokens_of(call);
  const std::int64_t length = tokens.size(1);
  if (call.is_too_large) {
    const Input& input = call.inputs.front();
    const ScoredText& text = texts_[input.texts.front()];
    auto labels = at::full_like(tokens, nn::kIgnoreIndex);
    const std::int64_t first = input.length - input.num_scored;
    std::copy(text.tokens.end() - text.num_scored, text.tokens.end(), labels.mutable_data_ptr<std::int64_t>() + first);
    sums[input.texts.front()] = -model(tokens, labels.to(device)).to(at::kDouble).item<double>();
    return;
  }
  std::vector<std::int64_t> positions;
  for (std::size_t row = 0; row < call.inputs.size(); ++row) {
    const Input& input = call.inputs[row];
    for (std::int64_t at = input.length - input.num_scored; at < input.length; ++at)
      positions.push_back(static_cast<std::int64_t>(row) * length + at);
  }
  const SomePositions some(model, at::tensor(positions, at::kLong).to(device));
  const auto log_probs = at::log_softmax(model(tokens)[0].to(at::kFloat), -1);
  std::vector<std::int64_t> places;  // of each scored token, in log_probs laid end to end
  std::int64_t end = 0;
  for (const Input& input : call.inputs) {
    end += input.num_scored;
    for (const std::size_t index : input.texts) {
      const ScoredText& text = texts_[index];
      for (std::int64_t i = text.num_scored; i > 0; --i)
        places.push_back((end - i) * log_probs.size(1) + text.tokens[text.tokens.size() - static_cast<std::size_t>(i)]);
    }
  }
  const auto picked =
      log_probs.flatten().index_select(0, at::tensor(places, at::kLong).to(device)).to(at::kCPU, at::kDouble);
  const double* next = picked.const_data_ptr<double>();
  for (const Input& input : call.inputs)
    for (const std::size_t index : input.texts)
      for (std::int64_t i = 0; i < texts_[index].num_scored; ++i) sums[index] += *next++;
}

}  // namespace titan::train
