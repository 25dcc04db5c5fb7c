#include "config/validate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "config/command_line/program.h"
#include "config/keys/datasets.h"
#include "config/keys/fields.h"
#include "config/keys/largest_sizes.h"
#include "config/keys/rank_list.h"
#include "config/keys/values/evaluation_tasks.h"
#include "config/keys/values/float8_keys.h"
#include "config/keys/values/fsdp_wrap.h"
#include "config/keys/values/lora_keys.h"
#include "config/keys/values/lr_factors.h"
#include "config/keys/values/pipeline_limits.h"
#include "pipeline/nearest_numbers.h"

namespace titan::config {
namespace {

using Faults = std::vector<Fault>;
using Warnings = std::vector<std::string>;

std::string text(std::int64_t value) { return std::to_string(value); }

void check_schedule(const JobConfig& config, Faults& errors, Warnings& warnings) {
  const LRScheduler& lr = config.lr_scheduler;
  const std::int64_t total = lr.total_steps.value_or(config.training.steps);
  const std::string total_key = lr.total_steps ? "lr_scheduler.total_steps" : "training.steps";
  if (lr.total_steps && *lr.total_steps < config.training.steps) {
    errors.push_back({"lr_scheduler.total_steps (" + text(*lr.total_steps) + ") is less than training.steps (" +
                          text(config.training.steps) +
                          "): the learning rate would pass the end of its decay; set it to at least " +
                          text(config.training.steps) + " or leave it out",
                      {"lr_scheduler.total_steps", "training.steps"}});
  }
  if (lr.warmup_steps > total) {
    warnings.push_back("lr_scheduler.warmup_steps (" + text(lr.warmup_steps) + ") exceeds " + total_key + " (" +
                       text(total) + "): the warm-up is cut to " + text(total) + " steps" +
                       (lr.decay_ratio ? ", and there is no decay" : ""));
  }
  if (!lr.decay_ratio || lr.warmup_steps > total) return;
  const std::int64_t warmup = lr.warmup_steps;
  const auto decay = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(total) * *lr.decay_ratio));
  if (warmup + decay > total) {
    warnings.push_back("lr_scheduler.warmup_steps (" + text(warmup) + ") and the decay (" + text(decay) +
                       " steps by lr_scheduler.decay_ratio) exceed " + total_key + " (" + text(total) +
                       "): the decay is cut to " + text(total - warmup) + " steps");
  }
}

// Ranks along tp and cp split a sequence into equal parts. The factor 2 is TorchTitan's rule.
void check_length(const std::string& key, std::int64_t length, const Parallelism& p, Faults& errors) {
  const std::int64_t step = 2 * std::max<std::int64_t>(1, p.tensor_parallel_degree * p.context_parallel_degree);
  if (length % step == 0) return;
  errors.push_back({key + " (" + text(length) + ") must be a multiple of 2 * parallelism.tensor_parallel_degree (" +
                        text(p.tensor_parallel_degree) + ") * parallelism.context_parallel_degree (" +
                        text(p.context_parallel_degree) + ") = " + text(step) + "; use " +
                        pipeline::nearest_multiples(length, step),
                    {key, "parallelism.tensor_parallel_degree", "parallelism.context_parallel_degree"}});
}

// `sequences`: of a microbatch. `split`: ranks that share each of them.
void check_tokens(const std::string& sequences_key, std::int64_t sequences, const std::string& length_key,
                  std::int64_t length, std::int64_t split, Faults& errors) {
  if (sequences * (length / split) <= kMostTokens) return;
  errors.push_back({sequences_key + " (" + text(sequences) + ") * " + length_key + " (" + text(length) +
                        ") tokens are more than a microbatch can have on one rank, " + text(kMostTokens) +
                        "; lower one of them",
                    {sequences_key, length_key}});
}

void check_size_of_batch(const JobConfig& config, Faults& errors) {
  const Parallelism& p = config.parallelism;
  const Training& t = config.training;
  const std::string length_key = "training.seq_len", global_key = "training.global_batch_size";
  if (p.pipeline_parallel_degree > 1)
    check_tokens("parallelism.pipeline_parallel_microbatch_size", p.pipeline_parallel_microbatch_size, length_key,
                 t.seq_len, p.context_parallel_degree, errors);
  else
    check_tokens("training.local_batch_size", t.local_batch_size, length_key, t.seq_len, p.context_parallel_degree,
                 errors);
  if (config.validation.enable)
    check_tokens("validation.local_batch_size", config.validation.local_batch_size, "validation.seq_len",
                 config.validation.seq_len, p.context_parallel_degree, errors);
  if (t.global_batch_size <= kMostTokens * kLargestWorld / t.seq_len) return;
  errors.push_back({global_key + " (" + text(t.global_batch_size) + ") * " + length_key + " (" + text(t.seq_len) +
                        ") tokens are more than a step can have, " + text(kMostTokens * kLargestWorld) +
                        "; lower one of them",
                    {global_key, length_key}});
}

void check_sequence(const JobConfig& config, Faults& errors) {
  const auto longest = config.model.args.max_seq_len;  // beyond a flavor's own limit: a warning, as in TorchTitan
  if (longest && config.training.seq_len > *longest)
    errors.push_back({"training.seq_len (" + text(config.training.seq_len) + ") is more than model.args.max_seq_len (" +
                          text(*longest) + "), the longest that the model is made for; set it to at most " +
                          text(*longest),
                      {"training.seq_len", "model.args.max_seq_len"}});
  const Parallelism& p = config.parallelism;
  check_length("training.seq_len", config.training.seq_len, p, errors);
  const bool is_shared = p.tensor_parallel_degree > 1 || p.context_parallel_degree > 1;
  if (config.validation.enable && is_shared) check_length("validation.seq_len", config.validation.seq_len, p, errors);
}

// Generation adds one token at a time, which tensor-parallel ranks cannot split.
void check_prompts(const JobConfig& config, Faults& errors) {
  if (config.validation.prompts.empty() || config.parallelism.tensor_parallel_degree == 1) return;
  errors.push_back(
      {"validation.prompts needs parallelism.tensor_parallel_degree = 1; leave the prompts out, and ask the "
       "checkpoints with titan-train generate",
       {"validation.prompts", "parallelism.tensor_parallel_degree"}});
}

void check_data(const JobConfig& config, Faults& errors, Warnings& warnings) {
  const Training& training = config.training;
  for (Fault& fault : find_wrong_datasets(config)) errors.push_back(std::move(fault));
  if (training.dataset_mix.empty()) return;
  if (training.data_order == "torchtitan")
    errors.push_back(
        {"training.dataset_mix needs the elastic order: TorchTitan's has no mixtures; leave out "
         "training.data_order = \"torchtitan\"",
         {"training.dataset_mix", "training.data_order"}});
  if (training.dataset_path)
    warnings.push_back("training.dataset_mix is read; training.dataset and training.dataset_path are not");
}

void check_checkpoint_options(const JobConfig& config, Faults& errors) {
  const Checkpoint& c = config.checkpoint;
  for (const std::string& key : c.allow_changed) {
    if (find_field(key)) continue;
    const auto near = nearest_name(key, field_names());
    errors.push_back(
        {"checkpoint.allow_changed: unknown key \"" + key + "\"" + (near ? ", did you mean \"" + *near + "\"?" : ""),
         {"checkpoint.allow_changed"}});
  }
  if (c.keep_latest_k == 1)
    errors.push_back(
        {"checkpoint.keep_latest_k = 1 could delete the only whole checkpoint while the next one is being written; use "
         "0 (keep all) or at least 2",
         {"checkpoint.keep_latest_k"}});
  if (c.create_seed_checkpoint && !c.enable)
    errors.push_back({"checkpoint.create_seed_checkpoint needs checkpoint.enable = true; set that too",
                      {"checkpoint.create_seed_checkpoint", "checkpoint.enable"}});
  if (c.memory_interval > 0 && !c.enable)
    errors.push_back(
        {"checkpoint.memory_interval copies what a checkpoint holds, and needs checkpoint.enable = true; "
         "set that too",
         {"checkpoint.memory_interval", "checkpoint.enable"}});
  if (c.memory_interval > 0 && c.enable && c.load_only)
    errors.push_back(
        {"checkpoint.memory_interval makes copies of the state, and checkpoint.load_only forbids them; set "
         "one to 0 or false",
         {"checkpoint.memory_interval", "checkpoint.load_only"}});
  if (c.create_seed_checkpoint && c.load_only)
    errors.push_back({"checkpoint.create_seed_checkpoint saves and checkpoint.load_only forbids it; set one to false",
                      {"checkpoint.create_seed_checkpoint", "checkpoint.load_only"}});
  if (c.export_dtype != "float32" && !c.last_save_model_only)
    errors.push_back({"checkpoint.export_dtype = \"" + c.export_dtype +
                          "\" needs checkpoint.last_save_model_only = true: a full checkpoint keeps its dtypes",
                      {"checkpoint.export_dtype", "checkpoint.last_save_model_only"}});
  if (c.last_save_in_hf && !c.last_save_model_only)
    errors.push_back({"checkpoint.last_save_in_hf needs checkpoint.last_save_model_only = true",
                      {"checkpoint.last_save_in_hf", "checkpoint.last_save_model_only"}});
  if (c.last_save_as == "file" && !c.last_save_model_only)
    errors.push_back(
        {"checkpoint.last_save_as = \"file\" needs checkpoint.last_save_model_only = true: one file holds the "
         "weights alone",
         {"checkpoint.last_save_as", "checkpoint.last_save_model_only"}});
  if (c.last_save_as == "file" && c.last_save_in_hf)
    errors.push_back(
        {"checkpoint.last_save_as = \"file\" and checkpoint.last_save_in_hf ask for two formats of the last "
         "checkpoint; leave one out",
         {"checkpoint.last_save_as", "checkpoint.last_save_in_hf"}});
  if (c.initial_load_in_hf && !c.initial_load_model_only)
    errors.push_back({"checkpoint.initial_load_in_hf needs checkpoint.initial_load_model_only = true",
                      {"checkpoint.initial_load_in_hf", "checkpoint.initial_load_model_only"}});
}

void check_on_nan(const JobConfig& config, Faults& errors) {
  const Training& t = config.training;
  if (t.on_nan != "rollback") return;
  const std::string what = "training.on_nan = \"rollback\" ";
  if (!config.checkpoint.enable)
    errors.push_back(
        {what + "needs checkpoints to go back to; set checkpoint.enable = true, or use \"stop\" or \"skip\"",
         {"training.on_nan", "checkpoint.enable"}});
  if (config.checkpoint.enable && config.checkpoint.load_only)
    errors.push_back({what + "needs checkpoints of this run, and checkpoint.load_only forbids to save any; set one to "
                             "another value",
                      {"training.on_nan", "checkpoint.load_only"}});
  if (t.mixed_precision_param == "float16" || t.mixed_precision_reduce == "float16")
    errors.push_back({what + "is not for float16, whose gradient scale leaves such steps out by itself; use \"stop\"",
                      {"training.on_nan", "training.mixed_precision_param"}});
}

void check_wrap_rule(const JobConfig& config, Faults& errors) {
  try {
    parse_fsdp_wrap(config.parallelism.fsdp_wrap);
  } catch (const ConfigError& error) {
    errors.push_back({error.what(), error.keys()});
  }
}

void check_attention(const JobConfig& config, Faults& errors) {
  const std::string& attention = config.cuda.attention;
  if (config.parallelism.context_parallel_degree > 1 && attention == "math")
    errors.push_back(
        {"cuda.attention = \"math\" gives no sums of the softmax, with which context parallelism merges the "
         "parts of a sequence; use \"auto\" or another kernel",
         {"cuda.attention", "parallelism.context_parallel_degree"}});
  if (config.training.mixed_precision_param != "float32" || (attention != "cudnn" && attention != "flash")) return;
  errors.push_back({"cuda.attention = \"" + attention +
                        "\" takes bfloat16 and float16, and training.mixed_precision_param is float32; use \"auto\", "
                        "\"efficient\" or \"math\", or train in bfloat16",
                    {"cuda.attention", "training.mixed_precision_param"}});
}

// A moment in bfloat16 has 8 significant bits. A step without gradients multiplies the second moment by beta2, and the
// product rounds to the old value at least for some values if beta2 is above 1 - 2^-8, for all if it is above 1 - 2^-9.
void warn_of_rounded_moments(const JobConfig& config, Warnings& warnings) {
  constexpr double kLargest = 1 - 1.0 / 256;
  const std::string& dtype = config.optimizer.state_dtype.value_or(config.training.dtype);
  const double beta2 = config.optimizer.beta2;
  if (dtype == "bfloat16" && beta2 > kLargest)
    warnings.push_back(
        "optimizer.beta2 (" + to_toml_value(beta2) + ") is above 0.996, and the moments are bfloat16: rounding " +
        "keeps the second one from shrinking; use 0.995 or less, or optimizer.state_dtype = \"float32\"");
}

void warn_of_checkpoint_options(const JobConfig& config, Warnings& warnings) {
  const Checkpoint& c = config.checkpoint;
  const auto left_out = [&](const char* part) { return std::ranges::count(c.exclude_from_loading, part) > 0; };
  if (c.enable && left_out("optimizer") && !left_out("lr_scheduler"))
    warnings.push_back(
        "checkpoint.exclude_from_loading has optimizer, but not lr_scheduler: new moments begin in the middle of the "
        "schedule; leave out lr_scheduler too to begin it anew");
  if (c.enable && c.interval > config.training.steps)
    warnings.push_back("checkpoint.interval (" + text(c.interval) + ") exceeds training.steps (" +
                       text(config.training.steps) + "): only the last step is saved");
  if (c.enable) return;
  if (c.initial_load_path) warnings.push_back("checkpoint.initial_load_path is not read: checkpoint.enable is false");
  if (c.load_step != -1) warnings.push_back("checkpoint.load_step is not read: checkpoint.enable is false");
  if (c.load_only) warnings.push_back("checkpoint.load_only loads nothing: checkpoint.enable is false");
}

void check_validation(const JobConfig& config, Faults& errors, Warnings& warnings) {
  const Validation& v = config.validation;
  if (!v.enable) return;
  if (v.freq > config.training.steps && !v.at_last_step)
    warnings.push_back("validation.freq (" + text(v.freq) + ") exceeds training.steps (" + text(config.training.steps) +
                       "): only step 1 is evaluated; set it to at most " + text(config.training.steps));
  if (v.seq_len > config.training.seq_len)
    errors.push_back({"validation.seq_len (" + text(v.seq_len) + ") is more than training.seq_len (" +
                          text(config.training.seq_len) +
                          "), the positions that the model is built for; set it to at most " +
                          text(config.training.seq_len),
                      {"validation.seq_len", "training.seq_len"}});
}

void check_evaluation(const JobConfig& config, Faults& errors, Warnings& warnings) {
  const Evaluation& e = config.evaluation;
  for (Fault& fault : find_wrong_tasks(config)) errors.push_back(std::move(fault));
  if (!e.tasks.empty() && e.freq > config.training.steps && !e.at_last_step)
    warnings.push_back("evaluation.freq (" + text(e.freq) + ") exceeds training.steps (" + text(config.training.steps) +
                       "): no step is evaluated; set it to at most " + text(config.training.steps));
}

void check_profiling(const JobConfig& config, std::optional<std::int64_t> world_size, Faults& errors) {
  const Profiling& p = config.profiling;
  if (p.enable_profiling && p.profiler_warmup + p.profiler_active > p.profile_freq)
    errors.push_back({"profiling.profile_freq (" + text(p.profile_freq) + ") is less than profiling.profiler_warmup (" +
                          text(p.profiler_warmup) + ") + profiling.profiler_active (" + text(p.profiler_active) +
                          "), which are steps of one cycle; set it to at least " +
                          text(p.profiler_warmup + p.profiler_active),
                      {"profiling.profile_freq", "profiling.profiler_warmup", "profiling.profiler_active"}});
  try {
    const RankList ranks(p.ranks);
    if (world_size && ranks.highest() >= *world_size && (p.enable_profiling || p.enable_memory_snapshot))
      errors.push_back({"profiling.ranks (\"" + p.ranks + "\") names rank " + text(ranks.highest()) +
                            ", and the ranks of this run are 0 to " + text(*world_size - 1),
                        {"profiling.ranks"}});
  } catch (const ConfigError& error) {
    errors.push_back({std::string("profiling.ranks: ") + error.what(), {"profiling.ranks"}});
  }
}

// All degrees except data_parallel_shard_degree: their product, and a text of "name (value)".
struct OtherDegrees {
  std::int64_t product = 1;
  std::string names;
  std::vector<std::string> keys;
};

OtherDegrees other_degrees(const Parallelism& p) {
  OtherDegrees out;
  const std::pair<const char*, std::int64_t> degrees[] = {
      {"parallelism.data_parallel_replicate_degree", p.data_parallel_replicate_degree},
      {"parallelism.context_parallel_degree", p.context_parallel_degree},
      {"parallelism.tensor_parallel_degree", p.tensor_parallel_degree},
      {"parallelism.pipeline_parallel_degree", p.pipeline_parallel_degree}};
  for (const auto& [key, value] : degrees) {
    if (__builtin_mul_overflow(out.product, value, &out.product)) out.product = INT64_MAX;
    out.names += std::string(" * ") + key + " (" + text(value) + ")";
    out.keys.emplace_back(key);
  }
  return out;
}

}  // namespace

Findings cross_check(const JobConfig& config, std::optional<std::int64_t> world_size) {
  Findings found;
  check_schedule(config, found.errors, found.warnings);
  check_sequence(config, found.errors);
  check_size_of_batch(config, found.errors);
  check_data(config, found.errors, found.warnings);
  for (Fault& fault : find_wrong_lr_factors(config)) found.errors.push_back(std::move(fault));
  for (Fault& fault : find_wrong_lora(config)) found.errors.push_back(std::move(fault));
  for (Fault& fault : find_wrong_converters(config)) found.errors.push_back(std::move(fault));
  for (std::string& warning : warnings_of_converters(config)) found.warnings.push_back(std::move(warning));
  for (Fault& fault : find_wrong_pipeline(config)) found.errors.push_back(std::move(fault));
  std::ranges::move(warn_of_unused_pipeline_keys(config), std::back_inserter(found.warnings));
  check_prompts(config, found.errors);
  check_checkpoint_options(config, found.errors);
  check_on_nan(config, found.errors);
  check_wrap_rule(config, found.errors);
  check_attention(config, found.errors);
  warn_of_rounded_moments(config, found.warnings);
  warn_of_checkpoint_options(config, found.warnings);
  if (program().check_model) program().check_model(config, found.errors);
  check_validation(config, found.errors, found.warnings);
  check_evaluation(config, found.errors, found.warnings);
  check_profiling(config, world_size, found.errors);
  if (!world_size) return found;
  try {
    num_accumulation_steps(config, *world_size);
    reshard_group_size(config.parallelism, resolve_shard_degree(config.parallelism, *world_size));
  } catch (const ConfigError& error) {
    found.errors.push_back({error.what(), error.keys()});
  }
  return found;
}

std::vector<std::string> validate(const JobConfig& config, std::optional<std::int64_t> world_size) {
  Findings found = cross_check(config, world_size);
  std::vector<std::string> errors;
  for (const Fault& fault : found.errors) errors.push_back("error: " + fault.message);
  throw_if_wrong(errors);
  return found.warnings;
}

std::int64_t resolve_shard_degree(const Parallelism& parallelism, std::int64_t world_size) {
  OtherDegrees others = other_degrees(parallelism);
  const std::int64_t shard = parallelism.data_parallel_shard_degree;
  const bool fits = others.product >= 1 && world_size % others.product == 0;
  if (fits && (shard == -1 || shard == world_size / others.product)) return world_size / others.product;
  const std::string shard_key = "parallelism.data_parallel_shard_degree";
  std::string hint = "change the number of ranks to a multiple of " + text(others.product);
  const bool is_possible = std::max<std::int64_t>(shard, 1) <= kLargestWorld / others.product;
  if (!is_possible) hint = "lower them";
  if (shard != -1 && is_possible) hint = "start " + text(shard * others.product) + " ranks";
  if (shard != -1 && fits)
    hint +=
        " or set " + shard_key + " to " + text(world_size / others.product) + " (or to -1: all ranks that are left)";
  others.keys.insert(others.keys.begin(), shard_key);
  throw ConfigError("the degrees must multiply to the number of ranks: " + shard_key + " (" + text(shard) + ")" +
                        others.names + (shard == -1 ? " do not divide " : " is not ") + text(world_size) + "; " + hint,
                    others.keys);
}

std::int64_t num_data_parallel_ranks(const Parallelism& parallelism, std::int64_t world_size) {
  return resolve_shard_degree(parallelism, world_size) * parallelism.data_parallel_replicate_degree;
}

std::optional<std::int64_t> reshard_group_size(const Parallelism& parallelism, std::int64_t shard_degree) {
  const std::string& rule = parallelism.fsdp_reshard_after_forward;
  if (rule == "default" || rule == "always" || rule == "never") return std::nullopt;
  const std::int64_t size = std::stoll(rule);
  if (size >= 1 && shard_degree % size == 0) return size;
  std::string divisors;
  for (std::int64_t d = 2; d < shard_degree; ++d) {
    if (shard_degree % d == 0) divisors += (divisors.empty() ? "" : ", ") + text(d);
  }
  throw ConfigError("parallelism.fsdp_reshard_after_forward (\"" + rule +
                        "\") must divide the number of ranks that share one copy of the weights (" +
                        text(shard_degree) + "); use " + (divisors.empty() ? "" : divisors + ", ") +
                        "\"always\" or \"never\"",
                    {"parallelism.fsdp_reshard_after_forward"});
}

std::int64_t num_accumulation_steps(const JobConfig& config, std::int64_t world_size) {
  const std::int64_t ranks = num_data_parallel_ranks(config.parallelism, world_size);
  const std::int64_t global = config.training.global_batch_size;
  const std::int64_t once = config.training.local_batch_size * ranks;
  if (global == -1) return 1;
  if (global % once == 0) return global / once;
  throw ConfigError("training.global_batch_size (" + text(global) +
                        ") must be a multiple of training.local_batch_size (" + text(config.training.local_batch_size) +
                        ") * data-parallel ranks (" + text(ranks) + ") = " + text(once) + "; use " +
                        pipeline::nearest_multiples(global, once) + ", or -1",
                    {"training.global_batch_size", "training.local_batch_size"});
}

}  // namespace titan::config
