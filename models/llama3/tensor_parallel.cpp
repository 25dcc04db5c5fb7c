#include "models/llama3/tensor_parallel.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace titan::models {

// Between blocks each rank holds its part of the sequence. A block gathers it twice, before the matmuls of attention
// and of the feed-forward, and reduce-scatters the results of their last matmuls. With enable_async_tensor_parallel,
// this communication overlaps with the matmuls.
tp::Plan llama_tensor_parallel_plan(const config::Parallelism& parallelism) {
  const auto colwise = std::make_shared<tp::ColwiseParallel>();
  const bool overlaps = parallelism.enable_async_tensor_parallel;
  const auto rowwise = std::make_shared<tp::RowwiseParallel>(overlaps);
  const auto gather_sequence = [&](std::vector<std::string> first_layers) {
    return overlaps ? std::make_shared<tp::PrepareModuleInput>(std::move(first_layers))
                    : std::make_shared<tp::PrepareModuleInput>();
  };
  const auto sequence_parallel = std::make_shared<tp::SequenceParallel>();
  // clang-format off
  return {
      {"tok_embeddings",              rowwise},
      {"layers.*.attention_norm",     sequence_parallel},
      {"layers.*.attention",          gather_sequence({"wq", "wk", "wv"})},
      {"layers.*.attention.wq",       colwise},
      {"layers.*.attention.wk",       colwise},
      {"layers.*.attention.wv",       colwise},
      {"layers.*.attention.wo",       rowwise},
      {"layers.*.ffn_norm",           sequence_parallel},
      {"layers.*.feed_forward",       gather_sequence({"w1", "w3"})},
      {"layers.*.feed_forward.w1",    colwise},
      {"layers.*.feed_forward.w3",    colwise},
      {"layers.*.feed_forward.w2",    rowwise},
      {"norm",                        sequence_parallel},
      {"output",                      std::make_shared<tp::VocabParallelLoss>(parallelism.disable_loss_parallel)},
  };
  // clang-format on
}

}  // namespace titan::models
