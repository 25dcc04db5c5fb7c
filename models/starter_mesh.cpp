#include "models/starter_mesh.h"

#include <algorithm>

namespace titan::models {
namespace {

constexpr std::int64_t kGpusOfHost = 8;
// Sharding over more than a few hundred ranks is limited by latency; replicas keep the groups small.
constexpr std::int64_t kLargestGroup = 512, kGroup = 256;
// A model of fewer parameters is gathered while it computes, whatever the batch.
constexpr double kLargeModel = 30e9;
// Gathered weights and gradients that wait for their reduction, of all stages of a pipeline's rank.
constexpr double kBytesOfStages = 20e9;

class Choice {
 public:
  Choice(const Start& start, const DecoderShape& shape, std::int64_t ranks)
      : start_(start), shape_(shape), stats_(stats_of(shape)), ranks_(ranks) {}

  std::optional<StarterMesh> choose() {
    mesh_.recompute = start_.recompute;
    if (!fits()) mesh_.recompute = "full";
    while (!fits() && can_double_tp()) mesh_.tp *= 2;
    while (!fits() && can_double_cp()) mesh_.cp *= 2;
    while (data_ranks() > sequences() && can_double_tp()) mesh_.tp *= 2;
    add_pipeline();
    const std::int64_t group = data_ranks() * mesh_.cp, copies = group / kGroup;
    if (group > kLargestGroup && group % kGroup == 0 && data_ranks() % copies == 0) mesh_.copies = copies;
    return fits() ? std::optional(mesh_) : std::nullopt;
  }

 private:
  double parameters() const { return static_cast<double>(stats_.num_parameters); }
  std::int64_t sequences() const { return std::max<std::int64_t>(1, start_.batch_tokens / start_.seq_len); }
  std::int64_t data_ranks() const { return ranks_ / mesh_.ranks_of_batch(); }

  bool can_double_tp() const {
    const std::int64_t tp = 2 * mesh_.tp;
    const auto& attention = shape_.block.attention;
    return tp <= kGpusOfHost && ranks_ % (tp * mesh_.cp) == 0 && attention.n_heads % tp == 0 &&
           attention.n_kv_heads % tp == 0 && start_.seq_len % (2 * tp * mesh_.cp) == 0;
  }
  bool can_double_cp() const {
    const std::int64_t cp = 2 * mesh_.cp;
    return cp <= kGroup && ranks_ % (mesh_.tp * cp) == 0 && start_.seq_len % (2 * mesh_.tp * cp) == 0;
  }

  void add_pipeline() {
    const bool gathers_for_one = sequences() < 2 * data_ranks();
    if (mesh_.tp < kGpusOfHost || parameters() < kLargeModel || !gathers_for_one) return;
    std::int64_t pp = 2;
    while (bytes_of_stages(pp) > kBytesOfStages) pp *= 2;
    if (data_ranks() % pp != 0 || shape_.n_layers + 2 < 2 * pp) return;
    mesh_.pp = pp;
    // Its schedule takes the microbatches in rounds of so many.
    mesh_.local_batch_size = std::max<std::int64_t>(1, sequences() / data_ranks() / pp) * pp;
  }

  double bytes_of_stages(std::int64_t pp) const {
    constexpr double kBytesOfParameter = 2 + 4;  // in bfloat16, and its gradient in float32
    return kBytesOfParameter * parameters() / static_cast<double>(mesh_.tp * pp);
  }

  // A rough sum. The numbers per token and element are those of the dry run for dense models.
  bool fits() const {
    constexpr double kState = 16;    // a weight, its gradient and two moments in float32
    constexpr double kOfGroup = 12;  // two groups in bfloat16, one reduction's input and its sum in float32
    constexpr double kOfBlock = 70, kOfLogit = 12;
    constexpr double kBesides = 8e9;  // CUDA's context and NCCL
    const double kept = mesh_.recompute == "full" ? 2.1 : mesh_.recompute == "selective" ? 22 : 34;
    const auto dim = static_cast<double>(stats_.dim), vocab = static_cast<double>(stats_.vocab_size);
    const auto layers = static_cast<double>(stats_.num_layers);
    // Stages of a pipeline keep up to one and a half sequences each.
    const double in_flight = mesh_.pp > 1 ? 1.5 : 1;
    const double group = std::max(parameters() / layers, dim * vocab);
    const double weights = mesh_.pp > 1 ? bytes_of_stages(mesh_.pp) : kOfGroup * group / static_cast<double>(mesh_.tp);
    const double tokens = static_cast<double>(start_.seq_len) / static_cast<double>(mesh_.tp * mesh_.cp);
    const double state = kState * parameters() * static_cast<double>(mesh_.copies) / static_cast<double>(ranks_);
    const double use = state + weights + tokens * (in_flight * layers * dim * kept + kOfBlock * dim + kOfLogit * vocab);
    return use + kBesides < 0.95e9 * start_.gigabytes;
  }

  const Start& start_;
  const DecoderShape& shape_;
  ModelStats stats_;
  std::int64_t ranks_;
  StarterMesh mesh_;
};

}  // namespace

std::optional<StarterMesh> choose_mesh(const Start& start, const DecoderShape& shape, std::int64_t ranks) {
  return Choice(start, shape, ranks).choose();
}

}  // namespace titan::models
