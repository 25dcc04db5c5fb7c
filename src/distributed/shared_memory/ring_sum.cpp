#include "distributed/shared_memory/ring_sum.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "kernels/cpu/parallel.h"
#include "kernels/memory/part_sum.h"

namespace titan::dist {
namespace {

// Returns the elements per chunk of Gloo's ring. It cuts its input into one chunk per rank; a chunk has two or more
// equal segments of at most a mebibyte each.
std::int64_t ring_chunk_numel(std::int64_t numel, std::int64_t element_size, std::int64_t ranks) {
  constexpr std::int64_t kMostBytesInSegment = std::int64_t{1} << 20;
  const auto divide_up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const auto bytes = numel * element_size;
  const auto segments_in_chunk = std::max<std::int64_t>(divide_up(divide_up(bytes, kMostBytesInSegment), ranks), 2);
  return segments_in_chunk * divide_up(divide_up(bytes, segments_in_chunk * ranks), element_size);
}

// Adds tensors block by block, so that intermediate sums stay in the cache.
class BlockSum {
 public:
  static constexpr std::int64_t kNumel = 32768;

  explicit BlockSum(const at::TensorOptions& options)
      : sum_(at::empty({kNumel}, options)), wide_(at::empty({2, kNumel}, options)) {}

  // output [kNumel or fewer] = parts[0] + parts[1] + ..., in that order and in output's dtype. A part may be `output`.
  void add(const at::Tensor& output, const std::vector<at::Tensor>& parts) {
    // A sum of two is elementwise and may overwrite either operand.
    auto sum = parts.size() == 2 ? output : sum_.narrow(0, 0, output.numel());
    at::add_out(sum, widened(parts[0], 0), widened(parts[1], 1));
    for (std::size_t i = 2; i < parts.size(); ++i) sum.add_(widened(parts[i], 0));
    if (parts.size() > 2) output.copy_(sum);
  }

 private:
  at::Tensor widened(const at::Tensor& part, std::int64_t place) {
    if (part.scalar_type() == wide_.scalar_type()) return part;
    return wide_[place].narrow(0, 0, part.numel()).copy_(part);
  }

  at::Tensor sum_, wide_;
};

// Elements of the output within one chunk.
struct Block {
  std::int64_t from, to, chunk;
};

std::vector<Block> blocks_of(std::int64_t numel, std::int64_t first, std::int64_t chunk_numel) {
  std::vector<Block> blocks;
  for (std::int64_t from = 0; from < numel; from = blocks.back().to) {
    const auto chunk = (first + from) / chunk_numel;
    const auto to = std::min({numel, (chunk + 1) * chunk_numel - first, from + BlockSum::kNumel});
    blocks.push_back({from, to, chunk});
  }
  return blocks;
}

// Returns the order in which the parts are added in a chunk.
std::vector<std::size_t> order_in(std::int64_t chunk, std::int64_t ranks) {
  std::vector<std::size_t> order;
  for (std::int64_t hop = 1; hop <= ranks; ++hop)
    order.push_back(static_cast<std::size_t>((chunk + ranks - hop) % ranks));
  return order;
}

// Adds a block with ATen's operators, for the dtypes without a kernel.
void add_by_operators(const at::Tensor& output, const std::vector<at::Tensor>& parts,
                      const std::vector<std::size_t>& order, const Block& block, double divisor, BlockSum& block_sum) {
  std::vector<at::Tensor> in_order;
  for (const auto i : order) in_order.push_back(parts[i].slice(0, block.from, block.to));
  auto sum = output.slice(0, block.from, block.to);
  block_sum.add(sum, in_order);
  if (divisor != 1) sum.div_(divisor);
}

}  // namespace

void add_as_ring(const at::Tensor& output, const std::vector<at::Tensor>& parts, std::int64_t first,
                 std::int64_t input_numel, double divisor) {
  const auto ranks = static_cast<std::int64_t>(parts.size());
  const auto blocks = blocks_of(output.numel(), first, ring_chunk_numel(input_numel, output.element_size(), ranks));
  const bool has_kernel = kernels::takes_part_sum(output, parts);
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    const at::NoGradGuard no_grad;  // per thread
    std::optional<BlockSum> block_sum;
    if (!has_kernel) block_sum.emplace(output.options());
    for (auto i = begin; i < end; ++i) {
      const Block& block = blocks[static_cast<std::size_t>(i)];
      const auto order = order_in(block.chunk, ranks);
      if (has_kernel) {
        kernels::part_sum(kernels::best_part_sums(), output, parts, order, {block.from, block.to},
                          static_cast<float>(divisor));
      } else {
        add_by_operators(output, parts, order, block, divisor, *block_sum);
      }
    }
  };
  kernels::parallel_for(0, static_cast<std::int64_t>(blocks.size()), /*grain=*/1, add);
}

}  // namespace titan::dist
