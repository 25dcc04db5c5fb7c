#include "models/common/check_shape.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"
#include "config/keys/field_values.h"
#include "config/keys/largest_sizes.h"
#include "config/pipeline_plan.h"
#include "pipeline/nearest_numbers.h"

namespace titan::models {
namespace {

constexpr const char* kDegree = "parallelism.tensor_parallel_degree";

std::string text(std::int64_t value) { return std::to_string(value); }

std::int64_t nearest_divisor(std::int64_t number, std::int64_t wanted) {
  std::int64_t best = 1;
  for (std::int64_t d = 1; d <= number; ++d)
    if (number % d == 0 && std::abs(d - wanted) < std::abs(best - wanted)) best = d;
  return best;
}

void check_heads(const ModelStats& stats, std::int64_t degree) {
  const std::int64_t common = std::gcd(stats.num_heads, stats.num_kv_heads);
  if (common % degree == 0) return;
  throw ConfigError(std::string(kDegree) + " (" + std::to_string(degree) + ") must divide the " +
                        std::to_string(stats.num_heads) + " query heads and the " + std::to_string(stats.num_kv_heads) +
                        " key/value heads of the model, as each rank has whole heads; set the degree to " +
                        pipeline::nearest_divisors(common, degree),
                    {kDegree, "model.args.n_kv_heads", "model.args.n_heads"});
}

// PyTorch gives ceil(rows / degree) rows to each of the first ranks, so that few rows can leave the last without one.
bool leaves_no_rank_out(std::int64_t rows, std::int64_t degree) {
  const std::int64_t chunk = (rows + degree - 1) / degree;
  return chunk * (degree - 1) < rows;
}

// The degree divides the heads, and a lower one must, too.
void check_vocabulary(const ModelStats& stats, std::int64_t degree) {
  if (leaves_no_rank_out(stats.vocab_size, degree)) return;
  const std::int64_t common = std::gcd(stats.num_heads, stats.num_kv_heads);
  std::int64_t lower = degree - 1;
  while (common % lower != 0 || !leaves_no_rank_out(stats.vocab_size, lower)) --lower;
  throw ConfigError(std::string(kDegree) + " (" + text(degree) + ") leaves a rank without one of the " +
                        text(stats.vocab_size) + " rows of the vocabulary; set it to " + text(lower),
                    {kDegree, "model.args.vocab_size"});
}

// Appends a fault for each value that the type of scaling does not read. Without a type, it is llama3.
void refuse_args_of_other_scalings(const config::RopeScalingArgs& args, std::vector<config::Fault>& errors) {
  const std::string table = "model.args.rope_scaling_args.", type = args.type.value_or("llama3");
  const auto refuse = [&](const char* key, bool is_given, bool is_read, const char* types) {
    if (is_given && !is_read)
      errors.push_back({table + key + " has no effect: " + table + "type is \"" + type + "\", and " + types +
                            "; remove it, or set the type",
                        {table + key, table + "type"}});
  };
  const bool is_llama3 = type == "llama3", is_yarn = type == "yarn";
  refuse("low_freq_factor", args.low_freq_factor.has_value(), is_llama3, "llama3 alone reads it");
  refuse("high_freq_factor", args.high_freq_factor.has_value(), is_llama3, "llama3 alone reads it");
  refuse("original_max_position_embeddings", args.original_max_position_embeddings.has_value(), is_llama3 || is_yarn,
         "llama3 and yarn read it");
  refuse("beta_fast", args.beta_fast.has_value(), is_yarn, "yarn alone reads it");
  refuse("beta_slow", args.beta_slow.has_value(), is_yarn, "yarn alone reads it");
  refuse("attention_factor", args.attention_factor.has_value(), is_yarn, "yarn alone reads it");
}

void check_attention_shape(const AttentionShape& shape) {
  if (shape.head_dim % 2 != 0) {
    throw ConfigError("model.args.head_dim (" + text(shape.head_dim) + ") must be even: rotary embedding turns pairs",
                      {"model.args.head_dim"});
  }
  if (shape.n_heads % shape.n_kv_heads != 0) {
    throw ConfigError("model.args.n_heads (" + text(shape.n_heads) + ") must be a multiple of model.args.n_kv_heads (" +
                          text(shape.n_kv_heads) + ")",
                      {"model.args.n_heads", "model.args.n_kv_heads"});
  }
}

// With each width within its limit, stats_of() stays within 64 bits.
void check_widths(const BlockShape& block) {
  const std::int64_t heads = block.attention.n_heads * block.attention.head_dim;
  if (heads > config::kLargestWidth)
    throw ConfigError("model.args.n_heads (" + text(block.attention.n_heads) + ") * the width of a head (" +
                          text(block.attention.head_dim) + ") is more than " + text(config::kLargestWidth) +
                          "; lower model.args.n_heads or head_dim",
                      {"model.args.n_heads", "model.args.head_dim"});
  if (block.hidden_dim < 1 || block.hidden_dim > config::kLargestHidden)
    throw ConfigError(
        "the feed-forward is " + text(block.hidden_dim) + " wide; expected 1 to " + text(config::kLargestHidden) +
            ": set model.args.hidden_dim, or change ffn_dim_multiplier or multiple_of",
        {"model.args.ffn_dim_multiplier", "model.args.multiple_of", "model.args.hidden_dim", "model.args.dim"});
}

}  // namespace

void check_decoder_args(const config::JobConfig& config, std::vector<config::Fault>& errors) {
  const config::ModelArgs& a = config.model.args;
  const std::string n_heads = "model.args.n_heads", n_kv_heads = "model.args.n_kv_heads";
  if (a.n_heads && a.n_kv_heads && *a.n_heads % *a.n_kv_heads != 0)
    errors.push_back({n_heads + " (" + text(*a.n_heads) + ") must be a multiple of " + n_kv_heads + " (" +
                          text(*a.n_kv_heads) + "); the nearest number of key/value heads is " +
                          text(nearest_divisor(*a.n_heads, *a.n_kv_heads)),
                      {n_heads, n_kv_heads}});
  const std::int64_t tp = config.parallelism.tensor_parallel_degree;
  for (const auto& [key, heads] : {std::pair(n_heads, a.n_heads), std::pair(n_kv_heads, a.n_kv_heads)}) {
    if (heads && *heads % tp != 0)
      errors.push_back({key + " (" + text(*heads) + ") must be a multiple of parallelism.tensor_parallel_degree (" +
                            text(tp) + "), as each rank has whole heads; set the degree to " +
                            text(std::gcd(*heads, tp)),
                        {key, "parallelism.tensor_parallel_degree"}});
  }
  const config::RopeScalingArgs& r = a.rope_scaling_args;
  refuse_args_of_other_scalings(r, errors);
  if (r.low_freq_factor && r.high_freq_factor && *r.low_freq_factor >= *r.high_freq_factor)
    errors.push_back(
        {"model.args.rope_scaling_args.low_freq_factor (" + config::to_toml_value(*r.low_freq_factor) +
             ") must be less than model.args.rope_scaling_args.high_freq_factor (" +
             config::to_toml_value(*r.high_freq_factor) + "); exchange them?",
         {"model.args.rope_scaling_args.low_freq_factor", "model.args.rope_scaling_args.high_freq_factor"}});
}

void check_width_of_heads(const config::JobConfig& config, std::vector<config::Fault>& errors) {
  const config::ModelArgs& a = config.model.args;
  const std::string dim = "model.args.dim", n_heads = "model.args.n_heads";
  if (a.head_dim) return;
  if (a.dim && a.n_heads && *a.dim % *a.n_heads != 0) {
    errors.push_back({dim + " (" + text(*a.dim) + ") must be a multiple of " + n_heads + " (" + text(*a.n_heads) +
                          "); the next one is " + text((*a.dim / *a.n_heads + 1) * *a.n_heads),
                      {dim, n_heads}});
  } else if (a.dim && a.n_heads && *a.dim / *a.n_heads % 2 != 0) {
    errors.push_back({dim + " (" + text(*a.dim) + ") / " + n_heads + " (" + text(*a.n_heads) +
                          ") must be even: rotary embedding turns pairs; set " + dim + " to " +
                          text(*a.dim + *a.n_heads),
                      {dim, n_heads}});
  }
}

void check_scaling_has_type(const config::JobConfig& config, std::vector<config::Fault>& errors) {
  const config::RopeScalingArgs& args = config.model.args.rope_scaling_args;
  const std::string table = "model.args.rope_scaling_args.";
  if (!args.type && args.scaling_factor && *args.scaling_factor != 1)
    errors.push_back({table + "scaling_factor needs " + table + "type: " + config.model.name +
                          " has no scaling of its own; set it to llama3, linear or yarn",
                      {table + "scaling_factor"}});
}

void check_divided_width(const AttentionShape& shape) {
  if (shape.dim % shape.n_heads != 0) {
    throw ConfigError("model.args.dim (" + text(shape.dim) + ") must be a multiple of model.args.n_heads (" +
                          text(shape.n_heads) + ")",
                      {"model.args.dim", "model.args.n_heads"});
  }
  if (shape.head_dim % 2 != 0) {
    throw ConfigError("model.args.dim (" + text(shape.dim) + ") / model.args.n_heads (" + text(shape.n_heads) +
                          ") must be even: rotary embedding turns pairs",
                      {"model.args.dim", "model.args.n_heads"});
  }
}

void check_decoder_shape(const DecoderShape& shape) {
  check_attention_shape(shape.block.attention);
  check_widths(shape.block);
  const std::int64_t parameters = stats_of(shape).num_parameters;
  if (parameters <= config::kMostParameters) return;
  throw ConfigError("a model of " + text(shape.n_layers) + " layers of width " + text(shape.block.attention.dim) +
                        " has " + text(parameters) + " parameters; at most " + text(config::kMostParameters) +
                        " are taken: lower model.args.n_layers, dim, hidden_dim or vocab_size",
                    {"model.args.n_layers", "model.args.dim", "model.args.hidden_dim", "model.args.vocab_size"});
}

void check_mesh(const ModelStats& stats, const config::Parallelism& parallelism) {
  if (parallelism.tensor_parallel_degree == 1) return;
  check_heads(stats, parallelism.tensor_parallel_degree);
  check_vocabulary(stats, parallelism.tensor_parallel_degree);
}

void check_pipeline(const ModelStats& stats, const config::JobConfig& config, std::vector<config::Fault>& errors) {
  if (config.parallelism.pipeline_parallel_degree == 1) return;
  const auto plan = config::find_pipeline_plan(config, stats.num_layers, errors);
  if (!plan || stats.num_tied_parameters == 0 || plan->rank_of("tok_embeddings") != plan->rank_of("output")) return;
  const std::string key = "parallelism.pipeline_parallel_schedule";
  errors.push_back({key + " (\"" + config.parallelism.pipeline_parallel_schedule +
                        "\") puts the first and the last stage on one rank, and the model's embedding is its output "
                        "projection: both stages would have one parameter; take a schedule that puts them on two "
                        "ranks, such as \"Interleaved1F1B\"",
                    {key, "model.args.enable_weight_tying"}});
}

}  // namespace titan::models
