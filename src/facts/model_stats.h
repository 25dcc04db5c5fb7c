// Sizes of a model, used to compute its FLOPs and memory.
#pragma once

#include <cstdint>

namespace titan {

struct ModelStats {
  std::int64_t num_parameters = 0;            // of the full, unsharded model; tied parameters count once
  std::int64_t num_embedding_parameters = 0;  // of the token table; does not include the output projection
  // Counts the parameters that are not trained, and so have no gradient and no optimizer state: with adapters, the
  // model's own.
  std::int64_t num_frozen_parameters = 0;
  // Elements that checkpoints store again, under the second names of tied parameters.
  std::int64_t num_tied_parameters = 0;
  std::int64_t vocab_size = 0;
  std::int64_t dim = 0;
  std::int64_t hidden_dim = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
};

}  // namespace titan
