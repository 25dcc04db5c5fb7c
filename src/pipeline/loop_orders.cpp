#include <algorithm>

#include "pipeline/rank_orders.h"

namespace titan::pipeline {
namespace {

// The rounds of an interleaved schedule on one rank. A round takes `per_round` microbatches through each of the rank's
// stages, one stage after the other.
struct Rounds {
  PipelineSize size;
  int rank;
  int per_round;

  Rounds(const PipelineSize& pipeline, int of_rank)
      : size(pipeline),
        rank(of_rank),
        per_round(pipeline.num_microbatches / std::max(1, pipeline.num_microbatches / pipeline.num_ranks)) {}

  int count() const { return size.stages_per_rank * size.num_microbatches; }

  // Returns the number of forwards before the first backward, if a microbatch takes `delay` actions from this rank to
  // the next and back.
  int warmup(int delay) const {
    const int of_last_rank = (size.stages_per_rank - 1) * per_round;
    return std::min(count(), of_last_rank + delay * (size.num_ranks - 1 - rank));
  }

  Action at(int index, Kind kind) const {
    const int turn = index / per_round % size.stages_per_rank;
    const int local = kind == Kind::kForward ? turn : size.stages_per_rank - 1 - turn;
    const int round = index / (per_round * size.stages_per_rank);
    return {.stage = local * size.num_ranks + rank, .kind = kind, .microbatch = round * per_round + index % per_round};
  }
};

}  // namespace

std::vector<Step> gpipe_order(const PipelineSize& size, int rank) {
  std::vector<Step> out;
  for (const Kind kind : {Kind::kForward, Kind::kBackward})
    for (int i = 0; i < size.num_microbatches; ++i) out.emplace_back(Action{rank, kind, i});
  return out;
}

std::vector<Step> one_forward_one_backward_order(const PipelineSize& size, int rank) {
  const int before = size.num_ranks - 1 - rank;  // forwards before the alternation
  std::vector<Step> out;
  for (int i = 0; i < size.num_microbatches + before; ++i) {
    if (i < size.num_microbatches) out.emplace_back(Action{rank, Kind::kForward, i});
    if (i >= before) out.emplace_back(Action{rank, Kind::kBackward, i - before});
  }
  return out;
}

std::vector<Step> interleaved_order(const PipelineSize& size, int rank) {
  const Rounds rounds(size, rank);
  const int before = rounds.warmup(/*delay=*/2);
  std::vector<Step> out;
  for (int i = 0; i < rounds.count() + before; ++i) {
    if (i < rounds.count()) out.emplace_back(rounds.at(i, Kind::kForward));
    if (i >= before) out.emplace_back(rounds.at(i - before, Kind::kBackward));
  }
  return out;
}

std::vector<Step> interleaved_zero_bubble_order(const PipelineSize& size, int rank) {
  const Rounds rounds(size, rank);
  const int before = rounds.warmup(/*delay=*/1);
  const int late = before + rank;  // the first weight gradient
  std::vector<Step> out;
  for (int i = 0; i < rounds.count() + late; ++i) {
    if (i < rounds.count()) out.emplace_back(rounds.at(i, Kind::kForward));
    if (i >= before && i - before < rounds.count()) out.emplace_back(rounds.at(i - before, Kind::kInputGradient));
    if (i < late) continue;
    Action weights = rounds.at(i - late, Kind::kInputGradient);
    weights.kind = Kind::kWeightGradient;
    out.emplace_back(weights);
  }
  return out;
}

std::vector<Step> looped_bfs_order(const PipelineSize& size, int rank) {
  std::vector<Step> out;
  for (int stage = rank; stage < size.num_stages(); stage += size.num_ranks)
    for (int i = 0; i < size.num_microbatches; ++i) out.emplace_back(Action{stage, Kind::kForward, i});
  const std::vector<Step> forwards = out;
  for (auto step = forwards.rbegin(); step != forwards.rend(); ++step)
    out.emplace_back(Action{step->first().stage, Kind::kBackward, step->first().microbatch});
  return out;
}

}  // namespace titan::pipeline
