#include "train/dry_run/dry_run.h"

#include <ATen/core/ScalarType.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <spdlog/fmt/fmt.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "distributed/config_dtype.h"
#include "facts/optimizer_facts.h"
#include "metrics/flops.h"
#include "train/dry_run/suggest_changes.h"
#include "train/step/run_parameters.h"

namespace titan::train {
namespace {

std::int64_t size_of(const std::string& dtype) {
  return static_cast<std::int64_t>(c10::elementSize(dist::dtype_of(dtype)));
}

double usable_part(const Device& device) { return device.is_gpu ? kUsablePartOfGpu : kUsablePartOfHost; }

// A parallel axis, with its key in JSON and its words in the table.
struct Axis {
  const char* key;
  int degree;
  std::string words;
  bool is_always_shown = false;  // in the table, which has other axes if their degree is above 1
};

std::array<Axis, 5> axes(const dist::ParallelDims& dims) {
  return {{{"replicas", dims.dp_replicate, counted(dims.dp_replicate, "replica"), true},
           {"shards", dims.dp_shard, counted(dims.dp_shard, "shard"), true},
           {"context_parallel", dims.cp, fmt::format("{} parts of each sequence", dims.cp)},
           {"tensor_parallel", dims.tp, fmt::format("{} parts of each layer", dims.tp)},
           {"pipeline_parallel", dims.pp, fmt::format("{} stages", dims.pp)}}};
}

// Returns "2 replicas x 4 shards x 2 parts of each layer".
std::string words(const dist::ParallelDims& dims) {
  std::vector<std::string> parts;
  for (const Axis& axis : axes(dims))
    if (axis.is_always_shown || axis.degree > 1) parts.push_back(axis.words);
  return join(parts, " x ");
}

// A part of the peak: its key in JSON, its label in the table, its bytes.
struct Kind {
  const char* key;
  std::string label;
  std::int64_t bytes;
};

std::vector<Kind> kinds(const DryRun& run) {
  const MemoryEstimate& memory = run.demand.memory;
  const std::string frozen = run.frozen_dtype.empty() ? "" : ", frozen ones " + run.frozen_dtype;
  return {{"parameters", "parameters (" + run.dtype + frozen + " shards)", memory.parameters},
          {"optimizer", run.optimizer + " moments", memory.optimizer},
          {"gradients", "gradients", memory.gradients},
          {"gathered", "gathered parameters", memory.gathered},
          {"reductions", "gradients being reduced", memory.reductions},
          {"activations", "activations kept for backward (recompute: " + run.recomputation + ")", memory.activations},
          {"logits", "logits and their gradients", memory.logits},
          {"temporaries", "temporaries of operators", memory.temporaries}};
}

std::string size_text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string text_line(const std::string& what, const std::string& value) {
  return fmt::format("  {:<58}{:>18}\n", what, value);
}

// Returns the groups and messages; empty if nothing is exchanged.
std::string communication_lines(const Communication& communication) {
  if (communication.messages.empty()) return "";
  std::string out = "gathered and reduced together (fully_shard's groups)\n";
  for (const auto& [what, value] : group_lines(communication.groups)) out += text_line(what, value);
  out += "messages per step in forward and backward\n";
  for (const auto& [what, value] : message_lines(communication.messages)) out += text_line(what, value);
  return out;
}

// Returns the pipeline's schedule, and what each of its ranks has and takes; empty without a pipeline.
std::string pipeline_lines(const DryRun& run) {
  if (!run.pipeline) return "";
  const PipelineForecast& pipeline = *run.pipeline;
  std::string out = "pipeline\n";
  out += text_line("schedule", pipeline.schedule);
  out += text_line("microbatches of each rank's batch", with_thousands(pipeline.microbatches));
  out += text_line("bubble: the share of a step in which ranks wait", fmt::format("{:.1f} %", 100 * pipeline.bubble));
  const auto& bytes = run.demand.memory.of_pipeline_ranks;
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    const auto stages = pipeline.stages_of_rank(static_cast<int>(rank));
    out += text_line(fmt::format("rank {}: {}", rank, join(stages, "; ")), size_text(bytes[rank]));
  }
  return out;
}

nlohmann::ordered_json pipeline_json(const DryRun& run) {
  if (!run.pipeline) return nullptr;
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  const auto& bytes = run.demand.memory.of_pipeline_ranks;
  for (std::size_t rank = 0; rank < bytes.size(); ++rank)
    ranks.push_back({{"stages", run.pipeline->stages_of_rank(static_cast<int>(rank))}, {"device_bytes", bytes[rank]}});
  return {{"schedule", run.pipeline->schedule},
          {"microbatches", run.pipeline->microbatches},
          {"bubble", run.pipeline->bubble},
          {"ranks", ranks},
          {"largest_rank", run.demand.memory.pipeline_rank}};
}

std::string verdict(const DryRun& run) {
  const Demand& demand = run.demand;
  const double percent = 100 * static_cast<double>(demand.total()) / static_cast<double>(run.device.bytes);
  const std::string size =
      fmt::format("{} is {:.0f} % of {}", size_text(demand.total()), percent, size_text(run.device.bytes));
  if (demand.fits()) return "fits (" + size + ")";
  return fmt::format("does not fit ({}; it may be {:.0f} %, the rest is for {})", size, 100 * usable_part(run.device),
                     run.device.is_gpu ? "workspaces and fragmentation" : "the system and libraries");
}

}  // namespace

CheckpointSize checkpoint_size(const config::JobConfig& config, const ModelStats& stats) {
  const std::int64_t trained = stats.num_parameters - stats.num_frozen_parameters;
  const std::int64_t moments = optimizer_facts(config.optimizer.name).moments * trained;
  const std::int64_t model = stats.num_parameters + stats.num_tied_parameters;
  const bool in_hf = config.checkpoint.last_save_in_hf;
  const bool has_ties_once = in_hf || config.checkpoint.last_save_as == "file";
  const bool has_adapters_alone = in_hf && config.lora.rank > 0;
  const std::int64_t exported = has_adapters_alone ? trained : has_ties_once ? stats.num_parameters : model;
  const std::string& dtype = config.training.dtype;
  return {trained * size_of(dtype) + (model - trained) * size_of(config.lora.base_dtype.value_or(dtype)) +
              moments * size_of(config.optimizer.state_dtype.value_or(dtype)),
          exported * size_of(config.checkpoint.export_dtype)};
}

double DryRun::flops_per_step() const {
  return static_cast<double>(flops_per_token) * static_cast<double>(tokens_per_step);
}

Demand demand_of(const config::JobConfig& config, const TrainSpec& spec, int world_size, const Device& device) {
  Demand out;
  out.memory = estimate_memory(config, spec, world_size, device.is_gpu ? EstimatedDevice::kGpu : EstimatedDevice::kCpu);
  out.allowed = static_cast<std::int64_t>(usable_part(device) * static_cast<double>(device.bytes));
  if (device.is_gpu) {
    out.context = kContextBytes;
    out.communicators = out.memory.num_communicators * kCommunicatorBytes;
  }
  return out;
}

DryRun dry_run(const config::JobConfig& config, const TrainSpec& spec, int world_size, const Device& device) {
  const auto shape = dist::RunShape::of(config, world_size);
  DryRun run;
  run.model = spec.name;
  run.world_size = world_size;
  run.dims = shape.dims;
  run.parameters = spec.stats.num_parameters;
  run.trained = spec.stats.num_parameters - spec.stats.num_frozen_parameters;
  run.flops_per_token = metrics::flops_per_token(spec.stats, config.training.seq_len);
  run.sequences_per_step = shape.sequences_per_step;
  run.tokens_per_step = run.sequences_per_step * config.training.seq_len;
  run.dtype = config.training.dtype;
  if (config.lora.base_dtype) run.frozen_dtype = *config.lora.base_dtype;
  run.recomputation = config.activation_checkpoint.mode;
  run.optimizer = config.optimizer.name;
  const auto model = spec.build_model(std::nullopt);
  run.groups = group_lines(config.optimizer, RunParameters(*model));
  run.checkpoint = checkpoint_size(config, spec.stats);
  run.device = device;
  if (run.dims.pp > 1) run.pipeline = forecast_pipeline(config, spec.stats.num_layers);
  run.demand = demand_of(config, spec, world_size, device);
  if (!run.demand.fits()) run.suggestions = suggest_changes(config, spec, world_size, device, run.demand);
  return run;
}

std::string to_table(const DryRun& run) {
  const Demand& demand = run.demand;
  std::string out = fmt::format("{}: {} = {}\n", run.model, counted(run.world_size, "rank"), words(run.dims));
  out += text_line("parameters", with_thousands(run.parameters));
  if (run.trained != run.parameters) {
    out += text_line("of them trained", with_thousands(run.trained));
    out += text_line("of them frozen, without gradients and moments", with_thousands(run.parameters - run.trained));
  }
  out += text_line("sequences per step", with_thousands(run.sequences_per_step));
  out += text_line("tokens per step", with_thousands(run.tokens_per_step));
  out += text_line("FLOPs per token (forward and backward)", with_thousands(run.flops_per_token));
  out += text_line("FLOPs per step", fmt::format("{:.3g}", run.flops_per_step()));
  for (const std::string& group : run.groups) out += "  optimizer: " + group + "\n";
  out += text_line("checkpoint on disk (model and " + run.optimizer + ")", size_text(run.checkpoint.full));
  out += text_line("checkpoint on disk (model alone)", size_text(run.checkpoint.model));
  out += text_line(run.pipeline ? "kept by forwards for their backwards" : "kept by a forward for its backward",
                   size_text(demand.memory.kept_by_forward));
  out += pipeline_lines(run);
  out += run.pipeline ? fmt::format("bytes of rank {} of the pipeline, at its peak in ", demand.memory.pipeline_rank)
                      : "bytes per rank, at the peak in ";
  out += demand.memory.moment + "\n";
  for (const auto& kind : kinds(run)) out += text_line(kind.label, size_text(kind.bytes));
  out += text_line("predicted peak", size_text(demand.memory.peak()));
  if (run.device.is_gpu) {
    out += "what a GPU holds besides\n";
    out += text_line("pools of PyTorch's caching allocator, not in use", size_text(demand.memory.pooled));
    out += text_line("CUDA context", size_text(demand.context));
    out += text_line("NCCL", size_text(demand.communicators));
    out += text_line("predicted use of the device", size_text(demand.total()));
  }
  if (demand.memory.on_host > 0)
    out += text_line("parameters, moments and gradients (host)", size_text(demand.memory.on_host));
  if (demand.memory.staging > 0)
    out += text_line("copy of the state for a save beside training (host)", size_text(demand.memory.staging));
  out += communication_lines(demand.memory.communication);
  out += run.device.name + ": " + verdict(run) + "\n";
  if (demand.fits()) return out;
  out += run.suggestions.empty() ? "no change that was tried makes it smaller\n" : "with a change\n";
  for (const auto& [change, total, fits] : run.suggestions)
    out += fmt::format("  {}: {}{}\n", change, size_text(total), fits ? ", fits" : ", does not fit");
  return out;
}

std::string to_json(const DryRun& run) {
  const Demand& demand = run.demand;
  nlohmann::ordered_json at_peak;
  for (const auto& kind : kinds(run)) at_peak[kind.key] = kind.bytes;
  nlohmann::ordered_json suggestions = nlohmann::ordered_json::array();
  for (const auto& [change, total, fits] : run.suggestions)
    suggestions.push_back({{"change", change}, {"bytes", total}, {"fits", fits}});
  nlohmann::ordered_json groups = nlohmann::ordered_json::array(), messages = nlohmann::ordered_json::array();
  for (const auto& [name, parameters, bytes] : demand.memory.communication.groups)
    groups.push_back({{"name", name}, {"parameters", parameters}, {"gathered_bytes", bytes}});
  for (const auto& [kind, group, count, bytes] : demand.memory.communication.messages)
    messages.push_back({{"kind", kind}, {"group", group}, {"count", count}, {"bytes", bytes}});
  nlohmann::ordered_json out = {{"model", run.model}, {"world_size", run.world_size}};
  for (const Axis& axis : axes(run.dims)) out[axis.key] = axis.degree;
  out.update({{"parameters", run.parameters},
              {"trained_parameters", run.trained},
              {"sequences_per_step", run.sequences_per_step},
              {"tokens_per_step", run.tokens_per_step},
              {"flops_per_token", run.flops_per_token},
              {"flops_per_step", run.flops_per_step()},
              {"optimizer_groups", run.groups},
              {"checkpoint_bytes", run.checkpoint.full},
              {"model_checkpoint_bytes", run.checkpoint.model},
              {"kept_by_forward_bytes", demand.memory.kept_by_forward},
              {"pipeline", pipeline_json(run)},
              {"peak_moment", demand.memory.moment},
              {"peak_by_kind_bytes", at_peak},
              {"peak_bytes", demand.memory.peak()},
              {"pooled_bytes", demand.memory.pooled},
              {"context_bytes", demand.context},
              {"communicator_bytes", demand.communicators},
              {"total_bytes", demand.total()},
              {"host_bytes", demand.memory.on_host},
              {"staging_bytes", demand.memory.staging},
              {"groups", groups},
              {"messages_per_step", messages},
              {"device", {{"name", run.device.name}, {"bytes", run.device.bytes}, {"is_gpu", run.device.is_gpu}}},
              {"allowed_bytes", demand.allowed},
              {"fits", demand.fits()},
              {"suggestions", suggestions}});
  return out.dump(2) + "\n";
}

}  // namespace titan::train
