#include "distributed/tensor/placement.h"

namespace titan::dist {
namespace {

const char* op_text(PartialOp op) {
  switch (op) {
    case PartialOp::kSum:
      return "sum";
    case PartialOp::kAvg:
      return "avg";
    case PartialOp::kMax:
      return "max";
    case PartialOp::kMin:
      return "min";
  }
  return "?";
}

}  // namespace

std::optional<std::int64_t> shard_dim(const Placement& placement) {
  if (const auto* shard = std::get_if<Shard>(&placement)) return shard->dim;
  if (const auto* strided = std::get_if<StridedShard>(&placement)) return strided->dim;
  return std::nullopt;
}

std::string placement_text(const Placement& placement) {
  if (const auto* shard = std::get_if<Shard>(&placement)) return "Shard(" + std::to_string(shard->dim) + ")";
  if (const auto* strided = std::get_if<StridedShard>(&placement)) {
    return "StridedShard(" + std::to_string(strided->dim) + ", split_factor=" + std::to_string(strided->split_factor) +
           ")";
  }
  if (const auto* partial = std::get_if<Partial>(&placement))
    return std::string("Partial(") + op_text(partial->op) + ")";
  return "Replicate()";
}

std::string placements_text(std::span<const Placement> placements) {
  std::string text = "(";
  for (std::size_t i = 0; i < placements.size(); ++i) text += (i == 0 ? "" : ", ") + placement_text(placements[i]);
  return text + ")";
}

}  // namespace titan::dist
