#include "train/dry_run/memory_estimate.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "distributed/config_dtype.h"
#include "distributed/tensor/sharding.h"
#include "kernels/operators.h"
#include "nn/ops/cross_entropy.h"
#include "nn/ops/meta_kernels.h"
#include "nn/ops/meta_run.h"
#include "nn/ops/weight_gradients.h"
#include "optim/make_optimizer.h"
#include "parallel/fsdp/fully_shard.h"
#include "train/build_model.h"
#include "train/dry_run/caching_pools.h"
#include "train/dry_run/memory_log.h"
#include "train/step/forward_backward.h"
#include "train/step/run_parameters.h"

namespace titan::train {
namespace {

using Ids = std::set<std::size_t>;  // indices of allocations in the log

// Adds the allocation of a tensor; an empty shard has none.
void add(Ids& ids, std::size_t id) {
  if (id != MemoryLog::kNone) ids.insert(id);
}

bool is_in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

// While alive, makes the meta device simulate `device`.
class StandsFor {
 public:
  StandsFor(EstimatedDevice device, const config::JobConfig& config)
      : used_fused_(kernels::uses_fused_kernels(c10::DeviceType::Meta)) {
    const bool is_gpu = device == EstimatedDevice::kGpu;
    meta_run::stand_for_gpu(is_gpu);
    kernels::use_fused_kernels(c10::DeviceType::Meta, (is_gpu ? config.cuda.kernels : config.cpu.kernels) == "own");
  }
  ~StandsFor() {
    nn::use_own_linear_node(false);  // a pipeline may have set it
    meta_run::stand_for_gpu(false);
    kernels::use_fused_kernels(c10::DeviceType::Meta, used_fused_);
  }
  StandsFor(const StandsFor&) = delete;
  StandsFor& operator=(const StandsFor&) = delete;

 private:
  bool used_fused_;
};

// While alive, records the allocations of tensors with one element per word and row that operators of this thread
// make: logits, and tensors computed elementwise from them.
class LogitsWatch {
 public:
  explicit LogitsWatch(const MemoryLog& log) : log_(log) {
    current_ = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&begin, &end).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~LogitsWatch() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }
  LogitsWatch(const LogitsWatch&) = delete;
  LogitsWatch& operator=(const LogitsWatch&) = delete;

  static LogitsWatch* current() { return current_; }

  // Looks for the logits of a loss from now on.
  void expect(const nn::LossShape& shape) {
    const auto rows_at_once = nn::rows_of_logits(shape);
    rows_of_vocab_[shape.vocab].insert({shape.rows, rows_at_once, shape.rows % rows_at_once});  // the last part
  }
  const Ids& found() const { return found_; }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&) { return nullptr; }
  static void end(const at::RecordFunction& function, at::ObserverContext*) {
    // A matmul in backward gives the weight's gradient. It has the shape of logits if the model's width equals the
    // number of tokens in the batch.
    if (is_in_backward() && std::string_view(function.name()) == "aten::mm") return;
    for (const auto& output : function.outputs())
      if (output.isTensor()) current_->see(output.toTensor());
  }
  void see(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.dim() < 2 || !tensor.is_floating_point()) return;
    const auto rows = rows_of_vocab_.find(tensor.size(-1));
    if (rows == rows_of_vocab_.end() || rows->first == 0) return;
    if (rows->second.contains(tensor.numel() / rows->first)) add(found_, log_.find(tensor));
  }

  static thread_local LogitsWatch* current_;
  const MemoryLog& log_;
  std::map<std::int64_t, std::set<std::int64_t>> rows_of_vocab_;  // numbers of rows that are made at once
  at::CallbackHandle handle_;
  Ids found_;
};
thread_local LogitsWatch* LogitsWatch::current_ = nullptr;

// Tells the log which sharded module's forward or backward is running.
void announce_modules(nn::Module& model, MemoryLog& log) {
  for (const auto& [fqn, module] : model.named_modules()) {
    if (fqn.empty() || !fsdp::is_fully_sharded(*module)) continue;
    module->add_pre_hook([&log, name = fqn](nn::Module&, nn::Tensors&) {
      log.enter((is_in_backward() ? "the backward of " : "the forward of ") + name);
    });
    module->add_post_hook([&log, name = fqn](nn::Module&, const nn::Tensors&, at::Tensor& output) {
      if (!output.requires_grad()) return;
      output.register_hook([&log, name](const at::Tensor& grad) {
        log.enter("the backward of " + name);
        return grad;
      });
    });
  }
}

// A model on the meta device that can take steps, and the kinds of the log's allocations.
class MetaRun {
 public:
  // `rank`: of the fake world.
  MetaRun(const config::JobConfig& config, const TrainSpec& spec, int world_size, int rank)
      : config_(config), spec_(spec), watched_(spec), world_(dist::World::fake(world_size, rank)) {
    watched_.loss = [this](LanguageModel& model, const Batch& batch) { return loss_of(model, batch); };
    const auto shape = dist::RunShape::of(config, world_size);
    const auto meshes = connect_meshes(*world_, shape.dims, config.training);
    all_microbatches_ = shape.accumulation_steps;
    microbatches_ = std::min<std::int64_t>(all_microbatches_, 2);
    // Document ends depend on the tokens, which meta tensors do not have: each row of the batch is one document.
    auto built = build_on_meta(watched_, spec.separates_documents ? std::optional<std::int64_t>(0) : std::nullopt,
                               {meshes, config}, at::kMeta);
    model_ = std::move(built.model);
    forward_backward_ = std::move(built.forward_backward);
    log_.start();  // everything made so far stays on the meta device in a real run, too
    log_.enter("the start");
    materialize(*model_, at::kMeta, config);
    for (const auto& parameter : model_->named_parameters()) add(parameters_, log_.find(parameter.tensor()));
    announce_modules(*model_, log_);
    if (meshes.pp.size() > 1) watch_stages();
    optimizer_ = optim::make_optimizer(config.optimizer, RunParameters(*model_).to_train());
  }
  ~MetaRun() { log_.stop(); }
  MetaRun(const MetaRun&) = delete;
  MetaRun& operator=(const MetaRun&) = delete;

  // Computes the gradients of a step, and asks for the optimizer's state in the first step. The update itself needs
  // values; its other memory is negligible.
  void step() {
    for (const auto& parameter : model_->named_parameters()) parameter.tensor().mutable_grad().reset();
    const LogitsWatch logits(log_);
    for (std::int64_t i = 0; i < microbatches_; ++i) run_microbatch();
    logits_.insert(logits.found().begin(), logits.found().end());
    for (const auto& parameter : model_->named_parameters()) add(gradients_, log_.find(parameter.tensor().grad()));
    log_.enter("the update");
    if (!optimizer_state_.empty()) return;
    for (std::size_t i = 0; i < optimizer_->parameters().size(); ++i)
      for (const auto& state : optimizer_->state(i)) add(optimizer_state_, log_.find(state.tensor));
  }

  // Returns the groups, and what was sent since the last call, which must be one step.
  Communication communication() {
    return {fsdp::groups_below(*model_), messages_of_step(collectives_.take(), microbatches_, all_microbatches_)};
  }

  // Returns the number of this rank's communicators on a GPU.
  int num_communicators() const { return world_->num_communicators(); }

  const MemoryLog& log() const { return log_; }
  const Ids& parameters() const { return parameters_; }
  const Ids& optimizer() const { return optimizer_state_; }
  const Ids& gradients() const { return gradients_; }
  const Ids& logits() const { return logits_; }
  // Returns the most bytes that forwards keep at once, without parameters that are still gathered.
  std::int64_t kept_by_forward() const {
    std::int64_t now = 0, most = 0;
    for (std::size_t event = 0; event < log_.now(); ++event) {
      const auto id = log_.allocation_of(event);
      const auto& allocation = log_.allocations()[id];
      if (allocation.use != MemoryUse::kOther || !is_kept_for_backward(id)) continue;
      now += allocation.born == event ? allocation.bytes : -allocation.bytes;
      most = std::max(most, now);
    }
    return most;
  }
  // True if a forward made the allocation and it is alive at that forward's end, for backward, or if it is what a stage
  // received.
  bool is_kept_for_backward(std::size_t id) const {
    if (received_.contains(id)) return true;
    const auto& allocation = log_.allocations()[id];
    // Forwards follow each other.
    const auto after = std::ranges::upper_bound(forwards_, allocation.born, {}, &Span::begin);
    if (after == forwards_.begin()) return false;
    const Span& forward = *std::prev(after);
    return allocation.born <= forward.end && allocation.lives_after(forward.end);
  }

 private:
  struct Span {
    std::size_t begin, end;  // events
  };

  void run_microbatch() {
    log_.enter("the forward");
    const auto int64 = at::TensorOptions(at::kLong).device(at::kMeta);
    const auto tokens = at::empty({config_.training.local_batch_size, config_.training.seq_len}, int64);
    forward_backward_->forward_backward({tokens, at::empty_like(tokens)}, [](const at::Tensor& loss) { return loss; });
  }

  // Marks the forwards of stages without a loss.
  void watch_stages() {
    model_->add_pre_hook([this](nn::Module&, nn::Tensors& inputs) {
      if (is_in_loss_) return;
      begin_of_stage_ = log_.now();
      if (inputs[0].is_floating_point()) add(received_, log_.find(inputs[0]));
    });
    model_->add_post_hook([this](nn::Module&, const nn::Tensors&, at::Tensor&) {
      if (!is_in_loss_) forwards_.push_back({begin_of_stage_, log_.now()});
    });
  }

  // Logits have the full vocabulary, or this rank's part of it.
  void expect_logits(std::int64_t rows) const {
    nn::LossShape shape{rows, spec_.stats.dim, spec_.stats.vocab_size,
                        dist::dtype_of(config_.training.mixed_precision_param), meta_run::stands_for_gpu()};
    LogitsWatch::current()->expect(shape);
    shape.vocab = dist::chunk_of(shape.vocab, config_.parallelism.tensor_parallel_degree, /*rank=*/0).count;
    LogitsWatch::current()->expect(shape);
  }

  // Computes the spec's loss, and marks the end of forward and the beginning of backward.
  at::Tensor loss_of(LanguageModel& model, const Batch& batch) {
    expect_logits(batch.labels.numel());
    const auto begin = log_.now();
    if (batch.tokens.is_floating_point()) add(received_, log_.find(batch.tokens));
    is_in_loss_ = true;
    auto loss = spec_.loss(model, batch);
    is_in_loss_ = false;
    forwards_.push_back({begin, log_.now()});
    log_.enter("the backward");
    return loss;
  }

  const config::JobConfig& config_;
  const TrainSpec& spec_;
  TrainSpec watched_;  // the spec, with a loss that is observed
  MemoryLog& log_ = MemoryLog::instance();
  std::unique_ptr<dist::World> world_;
  std::int64_t all_microbatches_, microbatches_;  // of a step, and those of them that this takes
  PlannedCollectives collectives_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<ForwardBackward> forward_backward_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Ids parameters_, optimizer_state_, gradients_, logits_;
  Ids received_;  // inputs of stages, from other stages
  bool is_in_loss_ = false;
  std::size_t begin_of_stage_ = 0;
  std::vector<Span> forwards_;
};

struct Peak {
  std::size_t event = 0;
  std::int64_t bytes = 0;
};

// Memory of the device that computes, or of its host.
enum class Place { kDevice, kHost };

// Returns the peak of live bytes at `place` from event `first` on. `on_host`: the allocations in host memory.
Peak find_peak(const MemoryLog& log, std::size_t first, Place place, const Ids& on_host) {
  Peak peak;
  std::int64_t now = 0;
  for (std::size_t event = 0; event < log.now(); ++event) {
    const auto id = log.allocation_of(event);
    if (on_host.contains(id) != (place == Place::kHost)) continue;
    const auto& allocation = log.allocations()[id];
    now += allocation.born == event ? allocation.bytes : -allocation.bytes;
    if (event >= first && now > peak.bytes) peak = {event, now};
  }
  return peak;
}

std::int64_t bytes_of(const MemoryLog& log, const Ids& ids) {
  std::int64_t bytes = 0;
  for (const auto id : ids) bytes += log.allocations()[id].bytes;
  return bytes;
}

std::int64_t& kind_of(std::size_t id, const MetaRun& run, MemoryEstimate& out) {
  const auto& allocation = run.log().allocations()[id];
  if (run.parameters().contains(id)) return out.parameters;
  if (run.optimizer().contains(id)) return out.optimizer;
  if (run.gradients().contains(id)) return out.gradients;
  if (allocation.use == MemoryUse::kGathered) return out.gathered;
  if (allocation.use == MemoryUse::kReduction) return out.reductions;
  if (run.logits().contains(id)) return out.logits;
  return run.is_kept_for_backward(id) ? out.activations : out.temporaries;
}

// True if the caching allocator of CUDA would use expandable segments. They are the default if the user sets nothing
// (distributed/device.cpp).
bool uses_expandable_segments() {
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"})
    if (const auto text = get_env(name)) return text->find("expandable_segments:True") != std::string::npos;
  return true;
}

// Returns the allocations in host memory with training.enable_cpu_offload on a GPU: the state, and copies of
// gradients.
Ids allocations_on_host(const MetaRun& run) {
  Ids ids = run.parameters();
  ids.insert(run.optimizer().begin(), run.optimizer().end());
  const auto& allocations = run.log().allocations();
  for (std::size_t id = 0; id < allocations.size(); ++id)
    if (allocations[id].use == MemoryUse::kHost) ids.insert(id);
  return ids;
}

std::int64_t reserved_bytes(const MemoryLog& log, const Ids& on_host) {
  CachingPools pools(uses_expandable_segments());
  for (std::size_t event = 0; event < log.now(); ++event) {
    const auto id = log.allocation_of(event);
    if (on_host.contains(id)) continue;
    const auto& allocation = log.allocations()[id];
    if (allocation.born == event) {
      pools.allocate(id, allocation.bytes, allocation.stream);
    } else {
      pools.free(id);
    }
  }
  return pools.reserved();
}

MemoryEstimate estimate_rank(const config::JobConfig& config, const TrainSpec& spec, int world_size, int rank,
                             bool is_gpu) {
  MetaRun run(config, spec, world_size, rank);
  run.step();
  const auto second_step = run.log().now();
  run.communication();  // the first step's
  run.step();

  const Ids on_host = is_gpu && config.training.enable_cpu_offload ? allocations_on_host(run) : Ids();
  MemoryEstimate out;
  const auto peak = find_peak(run.log(), second_step, Place::kDevice, on_host);
  out.moment = run.log().part_at(peak.event);
  const auto& allocations = run.log().allocations();
  for (std::size_t id = 0; id < allocations.size(); ++id) {
    if (allocations[id].lives_after(peak.event) && !on_host.contains(id))
      kind_of(id, run, out) += allocations[id].bytes;
  }
  out.kept_by_forward = run.kept_by_forward();
  out.on_host = find_peak(run.log(), second_step, Place::kHost, on_host).bytes;
  out.num_communicators = run.num_communicators();
  out.communication = run.communication();
  if (is_gpu) out.pooled = std::max<std::int64_t>(0, reserved_bytes(run.log(), on_host) - out.peak());
  if (config.checkpoint.enable && config.checkpoint.async_mode != "disabled")
    out.staging = bytes_of(run.log(), run.parameters()) + bytes_of(run.log(), run.optimizer());
  return out;
}

}  // namespace

MemoryEstimate estimate_memory(const config::JobConfig& config, const TrainSpec& spec, int world_size,
                               EstimatedDevice device) {
  const bool is_gpu = device == EstimatedDevice::kGpu;
  nn::register_meta_kernels();
  const StandsFor stands_for(device, config);
  const int stages = dist::ParallelDims::from_config(config.parallelism, world_size).pp;
  MemoryEstimate most;
  std::vector<std::int64_t> each;
  for (int rank = 0; rank < stages; ++rank) {
    auto next = estimate_rank(config, spec, world_size, rank * (world_size / stages), is_gpu);
    next.pipeline_rank = rank;
    each.push_back(next.peak() + next.pooled);
    if (each.back() > most.peak() + most.pooled) most = std::move(next);
  }
  if (stages > 1) most.of_pipeline_ranks = std::move(each);
  return most;
}

}  // namespace titan::train
