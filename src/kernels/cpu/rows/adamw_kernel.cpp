#include "kernels/cpu/rows/adamw_kernel.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace titan::kernels {
namespace {

constexpr std::int64_t kUnitsPerThread = 32768 / kAdamWUnit;  // minimum: fewer take less time than waking a thread
constexpr std::int64_t kSummedAtOnce = kUnitsPerThread * kAdamWUnit;

AdamWShard shard_of(const AdamWTensors& tensors) {
  return {tensors.param.mutable_data_ptr<float>(), tensors.grad.const_data_ptr<float>(),
          tensors.exp_avg.mutable_data_ptr<float>(), tensors.exp_avg_sq.mutable_data_ptr<float>()};
}

AdamWShard shard_from(const AdamWShard& shard, std::int64_t begin) {
  return {shard.param + begin, shard.grad + begin, shard.exp_avg + begin, shard.exp_avg_sq + begin};
}

// Bumps versions as in-place operators do, so that autograd refuses a backward that saved one of these before.
void bump_versions(const AdamWTensors& tensors) {
  for (const auto* tensor : {&tensors.param, &tensors.exp_avg, &tensors.exp_avg_sq})
    tensor->unsafeGetTensorImpl()->bump_version();
}

std::size_t blocks_of(std::int64_t count) {
  return static_cast<std::size_t>((count + kSummedAtOnce - 1) / kSummedAtOnce);
}

// Calls body(block, begin, length) for all blocks of `count` elements, on several threads.
template <typename Body>
void for_blocks(std::int64_t count, const Body& body) {
  parallel_for(0, static_cast<std::int64_t>(blocks_of(count)), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * kSummedAtOnce;
      body(static_cast<std::size_t>(block), begin, std::min(kSummedAtOnce, count - begin));
    }
  });
}

void add_block(std::uint64_t& total, std::uint64_t sum) { total = total * kAdamWSumFactor + sum; }

AdamWSums total_of(const std::vector<AdamWSums>& blocks) {
  AdamWSums total;
  for (const AdamWSums& block : blocks) {
    add_block(total.param, block.param);
    add_block(total.exp_avg, block.exp_avg);
    add_block(total.exp_avg_sq, block.exp_avg_sq);
  }
  return total;
}

}  // namespace

const AdamWKernels& best_adamw() { return TITAN_BEST_KERNELS(kAdamW); }

bool takes_adamw(const AdamWTensors& tensors) {
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
           tensor.sizes() == tensors.param.sizes();
  };
  return fits(tensors.param) && fits(tensors.grad) && fits(tensors.exp_avg) && fits(tensors.exp_avg_sq);
}

void adamw(const AdamWKernels& kernels, const AdamWTensors& tensors, const AdamWStep& step) {
  const AdamWShard shard = shard_of(tensors);
  const std::int64_t count = tensors.param.numel(), units = (count + kAdamWUnit - 1) / kAdamWUnit;
  parallel_for(0, units, kUnitsPerThread, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * kAdamWUnit, end = std::min(last * kAdamWUnit, count);
    kernels.update(end - begin, shard_from(shard, begin), step);
  });
  bump_versions(tensors);
}

void adamw_and_sum(const AdamWKernels& kernels, const AdamWTensors& tensors, const AdamWStep& step, AdamWSums& read,
                   AdamWSums& wrote) {
  const AdamWShard shard = shard_of(tensors);
  const std::int64_t count = tensors.param.numel();
  std::vector<AdamWSums> of_read(blocks_of(count)), of_wrote(blocks_of(count));
  for_blocks(count, [&](std::size_t block, std::int64_t begin, std::int64_t length) {
    kernels.update_and_sum(length, shard_from(shard, begin), step, of_read[block], of_wrote[block]);
  });
  bump_versions(tensors);
  read = total_of(of_read);
  wrote = total_of(of_wrote);
}

std::uint64_t adamw_sum(const AdamWKernels& kernels, const at::Tensor& tensor) {
  const auto* const values = tensor.const_data_ptr<float>();
  std::vector<std::uint64_t> sums(blocks_of(tensor.numel()));
  for_blocks(tensor.numel(), [&](std::size_t block, std::int64_t begin, std::int64_t length) {
    sums[block] = kernels.sum(length, values + begin);
  });
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) add_block(total, sum);
  return total;
}

}  // namespace titan::kernels
