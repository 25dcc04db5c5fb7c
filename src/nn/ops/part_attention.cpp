#include "nn/ops/part_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "kernels/operators.h"
#include "nn/ops/fused_attention.h"
#include "nn/ops/meta_run.h"

namespace titan::nn {
namespace {

struct Range {
  std::int64_t begin, length;

  at::Tensor of(const at::Tensor& x) const { return x.narrow(2, begin, length); }  // [B, heads, tokens, ...]
};

// A rectangle of queries and keys that one of ATen's kernels attends: each query sees every key, or it is a causal
// square.
struct Piece {
  Range queries, keys;
  bool is_causal;

  bool is_all(std::int64_t num_queries, std::int64_t num_keys) const {
    return queries.length == num_queries && keys.length == num_keys;
  }
};

// Splits what the queries see into the fewest pieces.
std::vector<Piece> pieces_of(std::int64_t num_queries, std::int64_t num_keys, std::int64_t offset) {
  const auto seen = std::min(num_keys, num_queries + std::min(offset, num_keys));  // by the last query
  if (offset + 1 >= seen) return {{{0, num_queries}, {0, seen}, false}};
  const auto square = seen - offset;
  std::vector<Piece> pieces;
  if (offset > 0) pieces.push_back({{0, square}, {0, offset}, false});
  pieces.push_back({{0, square}, {offset, square}, true});
  if (square < num_queries) pieces.push_back({{square, num_queries - square}, {0, seen}, false});
  return pieces;
}

// Says how one of ATen's kernels attends a piece: which, with how many heads of keys, and in which width.
struct Kernel {
  at::SDPBackend backend;
  bool repeats_keys;      // a head of keys for each head of queries
  std::int64_t head_dim;  // a head's elements, padded with zeros
};

Kernel kernel_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool is_causal) {
  const auto dim = q.size(-1);
  if (runs_on_host(q) && !needs_a_key_for_each_query(q, k)) return {at::SDPBackend::flash_attention, false, dim};
  const bool is_grouped = q.size(1) != k.size(1);
  for (const bool repeats : {is_grouped && needs_a_key_for_each_query(q, k), is_grouped}) {
    const auto keys = repeats ? repeat_heads(k, q.size(1)) : k, values = repeats ? repeat_heads(v, q.size(1)) : v;
    const auto backend = attention_backend(q, keys, values, is_causal);
    const bool pads = !runs_on_host(q) && backend == at::SDPBackend::flash_attention;  // to what is_fused() takes
    if (pads || is_fused(backend, q)) return {backend, repeats, pads ? (dim + 7) / 8 * 8 : dim};
  }
  throw ConfigError("no fused kernel of attention takes heads of " + std::to_string(dim) + " " +
                        c10::toString(q.scalar_type()) +
                        " on this device, and attention over a part of the keys needs one; allow another kernel",
                    {"cuda.attention"});
}

// [B, heads, tokens, E] with zeros up to the kernel's width, and contiguous heads.
at::Tensor widened(const at::Tensor& x, const Kernel& kernel) {
  if (kernel.head_dim != x.size(-1)) return at::constant_pad_nd(x, {0, kernel.head_dim - x.size(-1)});
  return x.stride(-1) == 1 ? x : x.contiguous();
}

// The same for keys or values.
at::Tensor widened_keys(const at::Tensor& x, const Kernel& kernel, std::int64_t heads) {
  return widened(kernel.repeats_keys ? repeat_heads(x, heads) : x, kernel);
}

// Undoes widened_keys() for a gradient: a head's gradient is the sum over its copies.
at::Tensor narrowed(const at::Tensor& grad, const at::Tensor& like) {
  const auto own = grad.narrow(-1, 0, like.size(-1));
  return own.size(1) == like.size(1) ? own : own.unflatten(1, {like.size(1), -1}).sum(2);
}

AttentionPart attend_piece(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool is_causal) {
  const auto kernel = kernel_of(q, k, v, is_causal);
  const auto found = attend(kernel.backend, widened(q, kernel), widened_keys(k, kernel, q.size(1)),
                            widened_keys(v, kernel, q.size(1)), is_causal, attention_scale(q));
  // cuDNN's sums are [B, H, N, 1], the efficient kernel's are padded.
  const auto sums = found.sums.dim() == 4 ? found.sums.squeeze(-1) : found.sums;
  return {found.out.narrow(-1, 0, q.size(-1)), sums.narrow(2, 0, q.size(2))};
}

// Returns the sums as the kernel's backward takes them.
at::Tensor sums_for(at::SDPBackend backend, const at::Tensor& sums) {
  constexpr std::int64_t kUnit = 32;  // of the efficient kernel, where a sum of infinity is a query that does not count
  const auto rest = (kUnit - sums.size(2) % kUnit) % kUnit;
  if (backend == at::SDPBackend::efficient_attention && rest != 0)
    return at::constant_pad_nd(sums, {0, rest}, std::numeric_limits<float>::infinity());
  return (backend == at::SDPBackend::cudnn_attention ? sums.unsqueeze(-1) : sums).contiguous();
}

PartGradients attend_piece_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& v, const at::Tensor& out, const at::Tensor& sums,
                                    bool is_causal) {
  const auto kernel = kernel_of(q, k, v, is_causal);
  FusedAttention forward{widened(out, kernel), sums_for(kernel.backend, sums), {}, {}};
  if (!runs_on_host(q)) forward.seed = forward.offset = at::empty({}, q.options().dtype(at::kLong));  // no dropout
  const auto [of_q, of_k, of_v] =
      attend_backward(kernel.backend, widened(grad_out, kernel), widened(q, kernel), widened_keys(k, kernel, q.size(1)),
                      widened_keys(v, kernel, q.size(1)), forward, is_causal, attention_scale(q), {true, true, true});
  return {narrowed(of_q, q), narrowed(of_k, k), narrowed(of_v, v)};
}

// True if this program's CPU kernel is asked: on CPU, and on the meta device if that stands for one.
bool asks_own_kernel(const at::Tensor& q) { return q.is_cpu() || (q.is_meta() && !meta_run::stands_for_gpu()); }

void check_offset(std::int64_t offset) {
  TITAN_CHECK(offset >= 0, "attention's first query would see no key: offset " + std::to_string(offset));
}

}  // namespace

AttentionPart attend_part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t offset) {
  check_offset(offset);
  const at::NoGradGuard no_graph;
  if (asks_own_kernel(q))
    if (auto [out, sums] = ops::attend_part(q, k, v, offset); out.defined()) return {out, sums};
  const auto pieces = pieces_of(q.size(2), k.size(2), offset);
  if (pieces.size() == 1 && pieces[0].is_all(q.size(2), k.size(2))) return attend_piece(q, k, v, pieces[0].is_causal);
  const AttentionPart merged = part_of_no_keys(q);
  for (const auto& [queries, keys, is_causal] : pieces)
    merge_parts({queries.of(merged.out), queries.of(merged.sums)},
                attend_piece(queries.of(q), keys.of(k), keys.of(v), is_causal));
  return {merged.out.to(q.scalar_type()), merged.sums};
}

PartGradients attend_part_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& out, const at::Tensor& sums,
                                   std::int64_t offset) {
  check_offset(offset);
  const at::NoGradGuard no_graph;
  if (asks_own_kernel(q))
    if (auto [of_q, of_k, of_v] = ops::attend_part_backward(grad_out, q, k, v, out, sums, offset); of_q.defined())
      return {of_q, of_k, of_v};
  const auto pieces = pieces_of(q.size(2), k.size(2), offset);
  if (pieces.size() == 1 && pieces[0].is_all(q.size(2), k.size(2)))
    return attend_piece_backward(grad_out, q, k, v, out, sums, pieces[0].is_causal);
  const auto zeros = [](const at::Tensor& like) { return at::zeros_like(like, like.options().dtype(at::kFloat)); };
  const PartGradients total{zeros(q), zeros(k), zeros(v)};
  for (const auto& [queries, keys, is_causal] : pieces) {
    const auto piece = attend_piece_backward(queries.of(grad_out), queries.of(q), keys.of(k), keys.of(v),
                                             queries.of(out), queries.of(sums), is_causal);
    queries.of(total.q).add_(piece.q);
    keys.of(total.k).add_(piece.k);
    keys.of(total.v).add_(piece.v);
  }
  return {total.q.to(q.scalar_type()), total.k.to(k.scalar_type()), total.v.to(v.scalar_type())};
}

AttentionPart part_of_no_keys(const at::Tensor& q) {
  const auto options = q.options().dtype(at::kFloat);
  return {at::zeros({q.size(0), q.size(2), q.size(1), q.size(3)}, options).transpose(1, 2),
          at::full({q.size(0), q.size(1), q.size(2)}, -std::numeric_limits<double>::infinity(), options)};
}

void merge_parts(const AttentionPart& merged, const AttentionPart& part) {
  const at::NoGradGuard no_graph;
  const auto share = (part.sums - merged.sums).sigmoid_().unsqueeze(-1);  // of the part among all keys
  at::Tensor out = merged.out, sums = merged.sums;
  out.lerp_(part.out.to(at::kFloat), share);
  at::logaddexp_out(sums, sums, part.sums);
}

}  // namespace titan::nn
