#include "models/common/check_mesh.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"
#include "distributed/tensor/sharding.h"

namespace titan::models {
namespace {

constexpr const char* kDegree = "parallelism.tensor_parallel_degree";

// The divisors of `number` around `degree`, which is none: "2 or 4", "8 at most".
std::string nearest_divisors(std::int64_t number, std::int64_t degree) {
  std::int64_t below = std::min(degree, number);
  while (number % below != 0) --below;
  if (degree > number) return std::to_string(below) + " at most";
  std::int64_t above = degree;
  while (number % above != 0) ++above;
  return std::to_string(below) + " or " + std::to_string(above);
}

void check_heads(const ModelStats& stats, std::int64_t degree) {
  const std::int64_t common = std::gcd(stats.num_heads, stats.num_kv_heads);
  if (common % degree == 0) return;
  throw ConfigError(std::string(kDegree) + " (" + std::to_string(degree) + ") must divide the " +
                        std::to_string(stats.num_heads) + " query heads and the " + std::to_string(stats.num_kv_heads) +
                        " key/value heads of the model, as each rank has whole heads; set the degree to " +
                        nearest_divisors(common, degree),
                    {kDegree, "model.args.n_kv_heads", "model.args.n_heads"});
}

// By PyTorch's rule the first ranks have ceil(rows / degree) each, so that few rows can leave the last without one.
void check_vocabulary(std::int64_t rows, std::int64_t degree) {
  if (dist::chunk_of(rows, degree, degree - 1).count > 0) return;
  throw ConfigError(std::string(kDegree) + " (" + std::to_string(degree) + ") leaves a rank without one of the " +
                        std::to_string(rows) + " rows of the vocabulary; set it lower",
                    {kDegree, "model.args.vocab_size"});
}

}  // namespace

void check_mesh(const ModelStats& stats, const config::Parallelism& parallelism) {
  if (parallelism.tensor_parallel_degree == 1) return;
  check_heads(stats, parallelism.tensor_parallel_degree);
  check_vocabulary(stats.vocab_size, parallelism.tensor_parallel_degree);
}

}  // namespace titan::models
