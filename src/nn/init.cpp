#include "nn/init.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "nn/random/counter_rng.h"

namespace titan::nn {
namespace {

// A run of elements that are contiguous both in the full parameter and in the local box.
struct Run {
  std::int64_t global;
  std::int64_t local;
  std::int64_t length;
};

// Returns the runs of a box, in ascending order of the full parameter's flat index.
std::vector<Run> runs_of(const dist::ShardSpec& spec) {
  const auto& shape = spec.global_shape;
  const auto& box = spec.local_shape;
  std::int64_t local_numel = 1;
  for (const auto n : box) local_numel *= n;
  if (local_numel == 0) return {};
  // Dims from `inner` on are not split, so the box's range of the dim before them is one run.
  std::size_t inner = shape.size();
  std::int64_t inner_numel = 1;
  while (inner > 0 && box[inner - 1] == shape[inner - 1]) inner_numel *= shape[--inner];
  const std::size_t split = inner == 0 ? 0 : inner - 1;
  const std::int64_t length = inner == 0 ? inner_numel : box[split] * inner_numel;
  std::vector<Run> runs;
  std::vector<std::int64_t> index(split, 0);
  for (std::int64_t local = 0; local < local_numel; local += length) {
    std::int64_t global = 0;
    for (std::size_t d = 0; d < split; ++d) global = global * shape[d] + spec.offset[d] + index[d];
    if (inner > 0) global = (global * shape[split] + spec.offset[split]) * inner_numel;
    runs.push_back({global, local, length});
    for (std::size_t d = split; d-- > 0 && ++index[d] == box[d];) index[d] = 0;
  }
  return runs;
}

double normal_cdf(double x) { return (1.0 + std::erf(x / std::numbers::sqrt2)) / 2.0; }

struct TruncNormal {
  double mean, std, a, b;
  double low() const { return 2 * normal_cdf((a - mean) / std) - 1; }
  double high() const { return 2 * normal_cdf((b - mean) / std) - 1; }
  // Maps uniforms in [low, high) to values by the operations of torch.nn.init.trunc_normal_, in its order.
  void finish(at::Tensor& block) const { block.erfinv_().mul_(std * std::numbers::sqrt2).add_(mean).clamp_(a, b); }
};

// Draws a full parameter block by block and copies the part in the local box. `draw` fills a block; a block that the
// box does not touch only advances the generator.
template <typename Draw>
void draw_sequentially(const InitTarget& target, at::Generator& generator, Draw&& draw) {
  // A multiple of 16: normal_ works in groups of 16, and treats the last 16 of a tensor differently. So the last block
  // is never smaller than 16, and never skipped.
  constexpr std::int64_t kBlock = 1 << 16;
  at::Tensor flat;
  if (target.local.defined()) {
    TITAN_CHECK(target.local.is_contiguous(), target.fqn + ": local shard is not contiguous");
    flat = target.local.detach().view(-1);
  }
  std::int64_t numel = 1;
  for (const auto n : target.spec.global_shape) numel *= n;
  const auto runs = runs_of(target.spec);
  auto buffer = at::empty({std::min(numel, 2 * kBlock)}, at::kFloat);
  std::size_t run = 0;
  for (std::int64_t begin = 0; begin < numel;) {
    const std::int64_t end = numel - begin < 2 * kBlock ? numel : begin + kBlock;
    while (run < runs.size() && runs[run].global + runs[run].length <= begin) ++run;
    const bool wanted = run < runs.size() && runs[run].global < end;
    if (wanted || end == numel) {
      auto block = buffer.narrow(0, 0, end - begin);
      draw(block);
      for (std::size_t r = run; r < runs.size() && runs[r].global < end; ++r) {
        const auto from = std::max(begin, runs[r].global);
        const auto to = std::min(end, runs[r].global + runs[r].length);
        flat.narrow(0, runs[r].local + from - runs[r].global, to - from)
            .copy_(block.narrow(0, from - begin, to - from));
      }
    } else {
      auto* engine = at::check_generator<at::CPUGeneratorImpl>(generator);
      for (std::int64_t i = begin; i < end; ++i) engine->random();  // one draw per float32 element
    }
    begin = end;
  }
}

// Fills the local box from the counter stream of its parameter, then maps uniforms to values with `finish`.
template <typename Finish>
void draw_by_counter(const InitTarget& target, std::uint64_t seed, Finish&& finish) {
  if (!target.local.defined()) return;
  auto values = at::empty({target.local.numel()}, target.local.options().dtype(at::kFloat).requires_grad(false));
  for (const auto& run : runs_of(target.spec)) {
    fill_counter_uniform(values.narrow(0, run.local, run.length), seed, stream_of(target.fqn), run.global);
  }
  finish(values);
  target.local.detach().view(-1).copy_(values);
}

}  // namespace

InitTarget::InitTarget(std::string absent, std::vector<std::int64_t> shape) : fqn(std::move(absent)) {
  spec.offset.assign(shape.size(), 0);
  spec.local_shape.assign(shape.size(), 0);
  spec.global_shape = std::move(shape);
}

void Initializer::ones(const InitTarget& target) {
  if (target.local.defined()) target.local.detach().fill_(1);
}

void Initializer::zeros(const InitTarget& target) {
  if (target.local.defined()) target.local.detach().fill_(0);
}

SequentialInitializer::SequentialInitializer(std::uint64_t seed) : generator_(at::detail::createCPUGenerator(seed)) {}

void SequentialInitializer::normal(const InitTarget& target, double mean, double std) {
  draw_sequentially(target, generator_, [&](at::Tensor& block) { block.normal_(mean, std, generator_); });
}

void SequentialInitializer::trunc_normal(const InitTarget& target, double mean, double std, double a, double b) {
  const TruncNormal distribution{mean, std, a, b};
  draw_sequentially(target, generator_, [&](at::Tensor& block) {
    block.uniform_(distribution.low(), distribution.high(), generator_);
    distribution.finish(block);
  });
}

void CounterInitializer::normal(const InitTarget& target, double mean, double std) {
  draw_by_counter(target, seed_,
                  [&](at::Tensor& u) { u.mul_(2).sub_(1).erfinv_().mul_(std * std::numbers::sqrt2).add_(mean); });
}

void CounterInitializer::trunc_normal(const InitTarget& target, double mean, double std, double a, double b) {
  const TruncNormal distribution{mean, std, a, b};
  draw_by_counter(target, seed_, [&](at::Tensor& u) {
    u.mul_(distribution.high() - distribution.low()).add_(distribution.low());
    distribution.finish(u);
  });
}

void CounterInitializer::uniform(const InitTarget& target, double low, double high) {
  draw_by_counter(target, seed_, [&](at::Tensor& u) { u.mul_(high - low).add_(low); });
}

}  // namespace titan::nn
