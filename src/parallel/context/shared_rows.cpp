#include "parallel/context/shared_rows.h"

#include "parallel/context/gathered_rows.h"
#include "parallel/context/ring_rows.h"

namespace titan::parallel {

std::unique_ptr<SharedRows> shared_rows(const RowSharing& sharing, const at::Tensor& q, const at::Tensor& lengths) {
  const auto rows = q.size(0);
  const auto tokens = split_row(sharing.balance, q.size(2) * sharing.group.size(), sharing.group.size(), lengths);
  if (sharing.rotation == Rotation::kRing) return std::make_unique<RingRows>(sharing.group, tokens, rows, lengths);
  return std::make_unique<GatheredRows>(sharing.group, tokens, rows, lengths);
}

}  // namespace titan::parallel
