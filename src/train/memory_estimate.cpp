#include "train/memory_estimate.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <memory>

#include "base/error.h"
#include "config/validate.h"
#include "dist/dtype.h"
#include "dist/parallel_dims.h"
#include "nn/cross_entropy.h"
#include "nn/init.h"
#include "nn/meta_kernels.h"
#include "parallel/fsdp/fully_shard.h"
#include "train/setup.h"

namespace titan::train {
namespace {

// Gives addresses of nothing and keeps the books.
class Meter : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const auto now = (now_ += static_cast<std::int64_t>(bytes));
    for (auto peak = peak_.load(); now > peak && !peak_.compare_exchange_weak(peak, now);) {
    }
    return {nullptr, new Block{this, static_cast<std::int64_t>(bytes)}, &release, at::Device(at::kMeta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {}

  std::int64_t now() const { return now_; }
  std::int64_t peak() const { return peak_; }
  void reset_peak() { peak_ = now_.load(); }

  // In place of the usual allocator of meta tensors from here on; it never goes, since tensors may outlive any scope.
  static Meter& install() {
    static Meter* const meter = [] {
      auto* made = new Meter();
      c10::SetAllocator(c10::DeviceType::Meta, made, /*priority=*/100);
      return made;
    }();
    return *meter;
  }

 private:
  struct Block {
    Meter* meter;
    std::int64_t bytes;
  };
  static void release(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    block->meter->now_ -= block->bytes;
  }

  std::atomic<std::int64_t> now_ = 0;
  std::atomic<std::int64_t> peak_ = 0;
};

// Weights without numbers.
class NoInitializer : public nn::Initializer {
 public:
  void normal(const nn::NamedParameter&, double, double) override {}
  void trunc_normal(const nn::NamedParameter&, double, double, double, double) override {}
};

std::int64_t two_largest_groups(nn::Module& model) {
  std::int64_t largest = 0, second = 0;
  for (auto* state : fsdp::FsdpState::all_below(model)) {
    if (!state->group()) continue;
    std::int64_t bytes = 0;
    for (const auto* param : state->group()->params())
      bytes += param->unsharded_param().numel() * static_cast<std::int64_t>(param->unsharded_param().element_size());
    second = std::max(second, std::min(largest, bytes));
    largest = std::max(largest, bytes);
  }
  return largest + second;
}

}  // namespace

MemoryEstimate estimate_memory(const config::JobConfig& config, const TrainSpec& spec, int world_size) {
  nn::register_meta_kernels();
  Meter& meter = Meter::install();
  const auto begin = meter.now();
  const auto world = dist::World::on_paper(world_size);
  const auto meshes = dist::Meshes::build(*world, dist::ParallelDims::from_config(config.parallelism, world_size));
  // Where documents end is in the tokens, which are not there: a row of the batch is one document.
  const auto model = spec.build_model(spec.separates_documents ? std::optional<std::int64_t>(0) : std::nullopt);
  spec.parallelize(*model, meshes.fsdp, config.training, config.parallelism, config.activation_checkpoint);
  fsdp::to_empty(*model, at::kMeta, dist::dtype_of(config.training.dtype));
  {
    const at::NoGradGuard no_grad;
    NoInitializer initializer;
    model->init_weights(initializer);
  }
  MemoryEstimate out;
  for (const auto& parameter : model->named_parameters())
    out.parameters += static_cast<std::int64_t>(parameter.tensor().storage().nbytes());
  const auto before_optimizer = meter.now();
  std::vector<at::Tensor> moments;  // AdamW itself wants numbers
  for (const auto& parameter : model->named_parameters()) {
    for (int i = 0; i < 2; ++i) moments.push_back(at::empty_like(parameter.tensor().detach()));
  }
  out.optimizer = meter.now() - before_optimizer;

  const auto& training = config.training;
  const auto int64 = at::TensorOptions(at::kLong).device(at::kMeta);
  const auto tokens = at::empty({training.local_batch_size, training.seq_len}, int64);
  const auto labels = at::empty_like(tokens);
  const auto microbatches = std::min<std::int64_t>(config::num_accumulation_steps(config, world_size), 2);
  meter.reset_peak();
  for (std::int64_t i = 0; i < microbatches; ++i) {
    const auto before = meter.now();
    const auto loss = (*model)(tokens, labels);
    out.activations = meter.now() - before;
    torch::autograd::backward({loss}, {});
  }
  out.logits = nn::bytes_of_logits(
      {tokens.numel(), spec.stats.dim, spec.stats.vocab_size, dist::dtype_of(training.mixed_precision_param)});
  out.gathered = two_largest_groups(*model);
  for (const auto& parameter : model->named_parameters()) {
    if (parameter.tensor().grad().defined())
      out.gradients += static_cast<std::int64_t>(parameter.tensor().grad().nbytes());
  }
  out.peak = meter.peak() - begin;
  if (config.checkpoint.enable && config.checkpoint.async_mode != "disabled")
    out.staging = out.parameters + out.optimizer;
  return out;
}

}  // namespace titan::train
