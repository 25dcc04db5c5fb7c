#include "train/build_model.h"

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/pipeline_plan.h"
#include "distributed/config_dtype.h"
#include "nn/init.h"
#include "nn/ops/weight_gradients.h"
#include "parallel/context/split_attention.h"
#include "parallel/fsdp/fully_shard.h"
#include "train/parts/pipelined.h"
#include "train/parts/split_rows.h"
#include "train/parts/staged_model.h"
#include "train/setup.h"

namespace titan::train {

namespace {

// Returns the modules that the names of each stage say.
std::vector<std::vector<nn::Module*>> modules_of(LanguageModel& model,
                                                 const std::vector<pipeline::StageModules>& stages) {
  std::map<std::string, nn::Module*> by_name;
  for (const auto& [fqn, module] : model.named_modules()) by_name[fqn] = module;
  std::vector<std::vector<nn::Module*>> out;
  for (const auto& stage : stages) {
    auto& modules = out.emplace_back();
    for (const auto& name : stage) modules.push_back(by_name.at(name));
  }
  return out;
}

// Returns the trained parameters of this rank that are tied to a slot in a stage of another rank.
std::vector<SharedParameter> shared_parameters(LanguageModel& model, const std::vector<ParameterSlot>& slots,
                                               const config::PipelinePlan& plan, int rank) {
  std::map<std::string, nn::NamedParameter> own;
  for (const auto& named : model.named_parameters(/*remove_duplicate=*/false)) own.emplace(named.fqn, named);
  std::vector<SharedParameter> out;
  for (const auto& slot : slots) {
    const auto& first = slots[slot.first];
    const int rank_of_first = plan.rank_of(first.fqn), rank_of_slot = plan.rank_of(slot.fqn);
    if (!slot.is_trained || rank_of_first == rank_of_slot) continue;
    if (rank == rank_of_first) out.push_back({own.at(first.fqn), rank_of_slot});
    if (rank == rank_of_slot) out.push_back({own.at(slot.fqn), rank_of_first});
  }
  return out;
}

std::unique_ptr<LanguageModel> all_stages(LanguageModel& model, const TrainSpec& spec, const config::PipelinePlan& plan,
                                          const ParallelContext& context, at::Device device) {
  return make_staged_model(model, {.rank_of_stage = plan.schedule.rank_of_stage,
                                   .group = context.meshes.pp.group(),
                                   .device = device,
                                   .dim = spec.stats.dim,
                                   .tokens_per = context.meshes.tp.size(),
                                   .dtype = dist::dtype_of(context.job.training.mixed_precision_param)});
}

// Returns how the ranks along cp share rows; nullopt if each rank has whole ones.
std::optional<RowSplit> row_split(const LanguageModel& model, const ParallelContext& context) {
  if (!context.splits_rows()) return std::nullopt;
  const auto& parallelism = context.job.parallelism;
  return RowSplit(model, parallel::row_sharing(context.meshes.cp.group(), parallelism.context_parallel_load_balancer,
                                               parallelism.context_parallel_rotate_method));
}

std::unique_ptr<ForwardBackward> pipelined(LanguageModel& model, const TrainSpec& spec,
                                           const std::vector<ParameterSlot>& slots, const config::PipelinePlan& plan,
                                           const ParallelContext& context, at::Device device) {
  auto& group = context.meshes.pp.group();
  auto shared = shared_parameters(model, slots, plan, group.rank());
  auto modules = modules_of(model, plan.stages_of_rank(group.rank()));
  nn::use_own_linear_node(plan.splits_backward());
  return make_pipelined(model, device, spec.loss,
                        {.schedule = plan.schedule,
                         .group = group,
                         .modules = std::move(modules),
                         .shared = std::move(shared),
                         .split = row_split(model, context),
                         .batches = context.meshes.batch.group(),
                         .keeps_gathered = context.job.parallelism.fsdp_reshard_after_forward == "default",
                         .rows = context.job.parallelism.pipeline_parallel_microbatch_size,
                         .dim = spec.stats.dim,
                         .tokens_per = context.meshes.tp.size(),
                         .dtype = dist::dtype_of(context.job.training.mixed_precision_param)});
}

}  // namespace

dist::Meshes connect_meshes(dist::World& world, const dist::ParallelDims& dims, const config::Training& training) {
  auto meshes = dist::Meshes::build(world, dims);
  if (uses_float16(training)) world.group().connect_accelerator();      // for GradScaler::unscale()
  if (training.on_spike == "skip") meshes.loss.connect_accelerators();  // judges each step's loss on the device
  return meshes;
}

BuiltModel build_on_meta(const TrainSpec& spec, std::optional<std::int64_t> document_end,
                         const ParallelContext& context, at::Device device) {
  auto model = spec.build_model(document_end);
  std::vector<ParameterSlot> slots;
  for (const ModelPass& pass : spec.passes) {
    if (pass.name == kPipelinePass) slots = slots_of(*model);
    pass.apply(*model, context);
  }
  if (slots.empty()) slots = slots_of(*model);
  if (context.meshes.pp.size() > 1) {
    const auto plan = config::pipeline_plan(context.job, spec.stats.num_layers);
    auto forward_backward = pipelined(*model, spec, slots, plan, context, device);
    auto whole = all_stages(*model, spec, plan, context, device);
    return {std::move(model), std::move(forward_backward), std::move(whole), std::move(slots)};
  }
  auto forward_backward = make_forward_backward(*model, device, spec.loss);
  if (const auto split = row_split(*model, context))
    forward_backward = make_split_rows(std::move(forward_backward), *split);
  return {std::move(model), std::move(forward_backward), nullptr, std::move(slots)};
}

StoredDtypes stored_dtypes(const config::JobConfig& config) {
  return {dist::dtype_of(config.training.dtype),
          dist::dtype_of(config.lora.base_dtype.value_or(config.training.dtype))};
}

void materialize(LanguageModel& model, at::Device device, const config::JobConfig& config) {
  const auto [trained, frozen] = stored_dtypes(config);
  materialize(model, device, trained, frozen);
}

void materialize(LanguageModel& model, at::Device device, at::ScalarType dtype, at::ScalarType frozen_dtype) {
  fsdp::to_empty(model, device, dtype, frozen_dtype);
  const at::NoGradGuard no_grad;
  nn::BuffersOnly buffers;
  model.init_weights(buffers, device);
  for (const auto& parameter : model.named_parameters())
    TITAN_CHECK(device.is_meta() || !parameter.tensor().is_meta(),
                parameter.fqn + " is still on the meta device after initialization");
}

}  // namespace titan::train
