#include "config/keys/renamed.h"

#include <span>

#include "config/keys/fields.h"

namespace titan::config {
namespace {

struct Renamed {
  std::string_view old_name;
  std::string_view new_name;  // empty: removed
  std::string_view note = {};
};

constexpr Renamed kRenamed[] = {
    {"job.print_args", "job.print_config"},
    {"job.save_config_folder", "job.save_config_file"},
    {"job.use_for_integration_test", "", "it changed nothing in a run"},
    {"profiling.run_profiler", "profiling.enable_profiling"},
    {"profiling.profile_every_x_iter", "profiling.profile_freq"},
    {"metrics.enable_color_printing", "metrics.disable_color_printing", "its meaning is the opposite"},
    {"metrics.rank_0_only", "metrics.save_for_all_ranks", "its meaning is the opposite"},
    {"model.norm_type", "", "every norm is RMSNorm"},
    {"model.use_flex_attn", "model.args.attn_mask_type", "\"block_causal\" separates documents"},
    {"model.attn_mask_type", "model.args.attn_mask_type"},
    {"optimizer.fused", "optimizer.implementation", "true is now \"fused\""},
    {"lr_scheduler.lr_min", "lr_scheduler.min_lr_factor"},
    {"training.batch_size", "training.local_batch_size"},
    {"training.warmup_steps", "lr_scheduler.warmup_steps"},
    {"training.seed", "debug.seed"},
    {"training.deterministic", "debug.deterministic"},
    {"training.debug_moe_force_load_balance", "debug.moe_force_load_balance"},
    {"training.compile", "compile.enable"},
    {"training.data_parallel_degree", "parallelism.data_parallel_shard_degree"},
    {"training.data_parallel_type", "", "set parallelism.data_parallel_shard_degree to 1 for DDP"},
    {"training.data_parallel_shard_degree", "parallelism.data_parallel_shard_degree"},
    {"training.data_parallel_replicate_degree", "parallelism.data_parallel_replicate_degree"},
    {"training.tensor_parallel_degree", "parallelism.tensor_parallel_degree"},
    {"training.pipeline_parallel_degree", "parallelism.pipeline_parallel_degree"},
    {"training.fsdp_reshard_after_forward", "parallelism.fsdp_reshard_after_forward"},
    {"training.disable_loss_parallel", "parallelism.disable_loss_parallel"},
    {"training.enable_loss_parallel", "parallelism.disable_loss_parallel", "its meaning is the opposite"},
    {"training.enable_float8_linear", "model.converters", "true is now [\"float8\"]"},
    {"training.enable_fp8_linear", "model.converters", "true is now [\"float8\"]"},
    {"experimental.context_parallel_degree", "parallelism.context_parallel_degree"},
    {"experimental.pipeline_parallel_degree", "parallelism.pipeline_parallel_degree"},
    {"experimental.pipeline_parallel_schedule", "parallelism.pipeline_parallel_schedule"},
    {"experimental.pipeline_parallel_schedule_csv", "parallelism.pipeline_parallel_schedule_csv"},
    {"experimental.pipeline_parallel_microbatches", "parallelism.pipeline_parallel_microbatch_size"},
    {"experimental.enable_async_tensor_parallel", "parallelism.enable_async_tensor_parallel"},
    {"experimental.pipeline_parallel_split_points", "parallelism.module_fqns_per_model_part"},
    {"parallelism.pipeline_parallel_split_points", "parallelism.module_fqns_per_model_part"},
    {"parallelism.pipeline_parallel_microbatches", "parallelism.pipeline_parallel_microbatch_size"},
    {"parallelism.enable_compiled_autograd", "", "there is no compiler in this program"},
    {"checkpoint.enable_checkpoint", "checkpoint.enable"},
    {"checkpoint.model_weights_only", "checkpoint.last_save_model_only"},
    {"checkpoint.last_save_model_weights_only", "checkpoint.last_save_model_only"},
    {"checkpoint.initial_load_model_weights_only", "checkpoint.initial_load_model_only"},
    {"checkpoint.last_save_in_safetensors_format", "checkpoint.last_save_in_hf"},
    {"checkpoint.interval_type", "", "checkpoint.interval counts steps, checkpoint.interval_minutes minutes"},
    {"memory_estimation.enabled", "memory_estimation.enable"},
    {"validation.enabled", "validation.enable"},
    {"float8", "quantize.linear.float8"},
    {"mx", "quantize.linear.mx"},
};

const Renamed* find(std::string_view name) {
  for (const Renamed& row : kRenamed)
    if (row.old_name == name) return &row;
  return nullptr;
}

}  // namespace

std::optional<std::string> new_name(std::string_view name) {
  const Renamed* row = find(name);
  return row ? std::optional<std::string>(row->new_name) : std::nullopt;
}

std::optional<std::string> renamed_hint(std::string_view name) {
  const Renamed* row = find(name);
  if (!row) return std::nullopt;
  const auto spelled = [](std::string_view text) {
    const bool is_key = text.find('.') != std::string_view::npos && !is_table(text);
    return is_key ? std::string(text) : "[" + std::string(text) + "]";
  };
  const std::string note = row->note.empty() ? "" : ": " + std::string(row->note);
  if (row->new_name.empty()) return std::string(name) + " was removed" + note + "; delete it";
  return spelled(name) + " is called " + spelled(row->new_name) + " now" + note;
}

}  // namespace titan::config
