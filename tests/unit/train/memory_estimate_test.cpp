#include "train/dry_run/memory_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/train/support.h"

namespace titan::train {
namespace {

constexpr std::int64_t kParametersOf8B = 8'030'261'248;
constexpr std::int64_t kTensorsOf8B = 32 * 9 + 3;

// The memory that forward keeps for backward does not depend on where the parameters are, nor on gradient accumulation.
TEST(MemoryEstimate, WhatForwardLeavesDoesNotDependOnTheNumberOfRanks) {
  auto config = config_of_8b();
  for (const char* mode : {"none", "full", "selective"}) {
    config.activation_checkpoint.mode = mode;
    config.training.global_batch_size = -1;
    const auto alone = estimate(config, 1).kept_by_forward;
    EXPECT_GT(alone, 4 * kGiB) << mode;
    for (const int ranks : {1, 2, 8}) {
      for (const int accumulation : {1, 2}) {
        config.training.global_batch_size = ranks * accumulation;
        EXPECT_EQ(estimate(config, ranks).kept_by_forward, alone) << mode << ranks << accumulation;
      }
    }
  }
}

// At the same moment the activations are equal too; with the full model on one rank the peak may be at another moment.
TEST(MemoryEstimate, ActivationsDoNotDependOnTheNumberOfRanks) {
  const auto on_8 = estimate(config_of_8b(), 8), on_64 = estimate(config_of_8b(), 64);
  EXPECT_EQ(on_8.moment, on_64.moment);
  EXPECT_EQ(on_8.activations, on_64.activations);
  EXPECT_EQ(on_8.logits, on_64.logits);
}

// A second microbatch adds the gradients of the first, and nothing else.
TEST(MemoryEstimate, AccumulationAddsTheGradients) {
  auto config = config_of_8b();
  const auto once = estimate(config, 8);
  config.training.global_batch_size = 16;
  const auto twice = estimate(config, 8);
  EXPECT_EQ(twice.activations, once.activations);
  EXPECT_EQ(once.gradients, 0);  // in the backward of the loss there are none yet
  EXPECT_NEAR(static_cast<double>(twice.gradients), 4.0 * kParametersOf8B / 8, 1 << 20);
  EXPECT_EQ(twice.peak() - once.peak(), twice.gradients);
}

TEST(MemoryEstimate, CountsStateOnceInItsDtype) {
  for (const int ranks : {1, 8}) {
    const auto found = estimate(config_of_8b(), ranks);
    EXPECT_NEAR(static_cast<double>(found.parameters), 4.0 * kParametersOf8B / ranks, 1 << 20);
    EXPECT_EQ(found.optimizer, 2 * found.parameters + 4 * kTensorsOf8B);  // each tensor has a counter of steps
  }
}

// 8192 rows of 128256 logits: the loss's backward holds their probabilities in float32 and two gradients of these.
TEST(MemoryEstimate, CountsLogitsOnce) {
  const auto found = estimate(config_of_8b(), 8);
  EXPECT_EQ(found.moment, "the backward of output");
  EXPECT_EQ(found.logits, std::int64_t{3} * 4 * 8192 * 128256);
}

// Each of two ranks has half of the vocabulary, of the heads and of the hidden features, and half of the sequence
// between the matmuls; gathered tensors are full.
TEST(MemoryEstimate, TensorParallelRanksShareLogitsAndActivations) {
  auto config = config_of_8b();
  const auto whole = estimate(config, 32);
  config.parallelism.tensor_parallel_degree = 2;
  const auto shared = estimate(config, 32);
  EXPECT_EQ(whole.moment, shared.moment);
  EXPECT_GT(shared.logits, 0);
  EXPECT_LE(shared.logits, whole.logits / 2 + kMiB);
  EXPECT_LT(shared.activations, whole.activations * 3 / 4);
  EXPECT_GT(shared.activations, whole.activations / 2 - kMiB);
  config.parallelism.disable_loss_parallel = true;
  EXPECT_GE(estimate(config, 32).logits, whole.logits);
}

// Tensor parallelism splits parameters on the meta device, where they take no memory: else 131 GiB for 70B at degree 2.
TEST(MemoryEstimate, WhatIsOnTheMetaDeviceIsNoMemory) {
  auto config = config_of_8b();
  config.model.flavor = "70B";
  config.parallelism.tensor_parallel_degree = 2;
  EXPECT_LT(estimate(config, 64).pooled, 20 * kGiB);
}

// The ranks of a pipeline have each parameter once: together as many as one rank without it.
TEST(MemoryEstimate, StagesShareTheState) {
  auto config = config_of_1b(/*layers=*/8);
  const auto whole = estimate(config, 1);
  config.parallelism.pipeline_parallel_degree = 4;
  const auto found = estimate(config, 4);
  EXPECT_EQ(found.of_pipeline_ranks.size(), 4U);
  EXPECT_LT(found.parameters, whole.parameters / 2);
  EXPECT_LT(found.peak(), whole.peak());
}

// Rank 0 of 1F1B has as many microbatches between forward and backward as there are ranks, however many there are;
// with GPipe it has all of them. Outputs on their way to the next stage count too: up to eight, 0.7 % of a microbatch
// each.
TEST(MemoryEstimate, TheScheduleSaysHowManyMicrobatchesAreKept) {
  auto config = config_of_1b(/*layers=*/6);
  config.model.args.vocab_size = 256;  // the first and the last stage are no larger than the others
  config.parallelism.pipeline_parallel_degree = 2;
  config.parallelism.pipeline_parallel_schedule = "1F1B";
  double kept_by_one = 0;
  for (const std::int64_t microbatches : {4, 8}) {
    config.training.local_batch_size = microbatches;
    config.parallelism.pipeline_parallel_schedule = "1F1B";
    const auto lean = estimate(config, 2);
    EXPECT_EQ(lean.pipeline_rank, 0);
    const auto kept = static_cast<double>(lean.kept_by_forward);
    if (kept_by_one == 0) kept_by_one = kept / 2;
    EXPECT_NEAR(kept / kept_by_one, 2, 0.1) << microbatches;
    config.parallelism.pipeline_parallel_schedule = "GPipe";
    const auto all = static_cast<double>(estimate(config, 2).kept_by_forward);
    EXPECT_NEAR(all / kept_by_one, static_cast<double>(microbatches), 0.1) << microbatches;
  }
}

TEST(MemoryEstimate, IsTheSameTwice) {
  const auto config = config_of_8b();
  EXPECT_EQ(estimate(config, 8).peak(), estimate(config, 8).peak());
}

// This program's CPU kernels need no float32 copy, and write the gradient over the logits.
TEST(MemoryEstimate, KnowsTheKernelsOfTheDevice) {
  auto config = config_of_8b();
  EXPECT_LE(estimate(config, 8, EstimatedDevice::kCpu).logits, std::int64_t{2} * 8192 * 128256);
  EXPECT_EQ(estimate(config, 8, EstimatedDevice::kCpu).pooled, 0);
  config.cpu.kernels = "aten";
  EXPECT_GT(estimate(config, 8, EstimatedDevice::kCpu).logits, 8 * kGiB);
}

TEST(MemoryEstimate, OffloadMovesTheStateToTheHost) {
  auto config = config_of_8b();
  const auto on_device = estimate(config, 8);
  config.training.enable_cpu_offload = true;
  const auto offloaded = estimate(config, 8);
  EXPECT_EQ(offloaded.on_host,
            2 * on_device.parameters + on_device.optimizer);  // a gradient is as large as a parameter
  EXPECT_EQ(offloaded.parameters + offloaded.optimizer + offloaded.gradients, 0);
}

// A device that gets its shards from the host holds them in float32 until they are cast: with one rank, a full block.
// An H100 reserved 7.139 GiB for this model; without these copies the prediction was 6.59 GiB.
TEST(MemoryEstimate, OffloadTakesRoomForWhatComesFromTheHost) {
  auto config = config_of_1b(/*layers=*/4);
  config.training.enable_cpu_offload = true;
  const auto found = estimate(config, 1);
  EXPECT_NEAR(static_cast<double>(found.peak() + found.pooled), 7.139 * kGiB, 0.02 * 7.139 * kGiB);
}

// An H100 reserved the same 27.48 GiB for either dtype (docs/memory.md). ATen's normalization keeps as much in
// float16 as in bfloat16.
TEST(MemoryEstimate, Float16TakesWhatBfloat16Takes) {
  auto config = config_of_1b(/*layers=*/16);
  const auto bfloat16 = estimate(config, 1);
  config.training.mixed_precision_param = "float16";
  EXPECT_EQ(estimate(config, 1).activations, bfloat16.activations);
  EXPECT_NEAR(static_cast<double>(bfloat16.peak() + bfloat16.pooled), 27.48 * kGiB, 0.02 * 27.48 * kGiB);
}

TEST(MemoryEstimate, StagesTheStateForAsynchronousSaves) {
  auto config = config_of_8b();
  EXPECT_EQ(estimate(config, 8).staging, 0);
  config.checkpoint.enable = true;
  config.checkpoint.async_mode = "async";
  const auto found = estimate(config, 8);
  EXPECT_EQ(found.staging, found.parameters + found.optimizer);
}

// The model is as wide as the batch has tokens, so the output weight's gradient has the shape of the logits.
TEST(MemoryEstimate, TellsLogitsFromTheWeightsGradient) {
  auto config = config_of_8b();
  config.training.seq_len = 4096;
  config.activation_checkpoint.mode = "none";
  EXPECT_EQ(estimate(config, 8).logits, std::int64_t{3} * 4 * 4096 * 128256);
}

// Expandable segments waste less memory between their blocks.
TEST(MemoryEstimate, ReadsTheAllocatorsSetting) {
  const auto config = config_of_8b();
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  unsetenv("PYTORCH_ALLOC_CONF");
  const auto expandable = estimate(config, 8).pooled;  // as a run sets it
  setenv("PYTORCH_ALLOC_CONF", "expandable_segments:False", 1);
  const auto segments = estimate(config, 8).pooled;
  unsetenv("PYTORCH_ALLOC_CONF");
  EXPECT_LT(expandable, segments);
}

}  // namespace
}  // namespace titan::train
