#include "nn/documents.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nn/ops/kept_ops.h"

namespace titan::nn {
namespace {

at::IntArrayRef sizes_of(const at::Tensor& lengths) {
  return {lengths.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(lengths.size(0))};
}

// Runs one attention per document. The gradient of one split is one concatenation; slices would each have a gradient as
// large as the batch.
at::Tensor one_after_the_other(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::IntArrayRef sizes) {
  const auto as_batch = [](const at::Tensor& document) { return document.transpose(0, 1).unsqueeze(0); };
  const auto queries = q.split_with_sizes(sizes), keys = k.split_with_sizes(sizes), values = v.split_with_sizes(sizes);
  std::vector<at::Tensor> outs;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto out = causal_attention(as_batch(queries[i]), as_batch(keys[i]), as_batch(values[i]));
    outs.push_back(out.squeeze(0).transpose(0, 1));
  }
  return at::cat(outs);
}

}  // namespace

at::Tensor document_lengths(const at::Tensor& tokens, std::optional<std::int64_t> end, const at::Tensor& documents) {
  // Meta tensors have no values to find ends in: a row is one document.
  const auto& rows = documents.defined() ? documents : tokens;
  if (rows.is_meta()) return at::full({rows.size(0)}, rows.size(1), at::kLong);
  const bool has_part = rows.size(1) != tokens.size(1);
  auto is_last = end && !has_part ? tokens.eq(*end) : at::zeros_like(rows, at::kBool);  // [B, T]
  if (documents.defined()) {
    is_last.logical_and_(documents.lt(0));
    const auto T = rows.size(1);
    is_last.narrow(1, 0, T - 1).logical_or_(documents.narrow(1, 0, T - 1).ne(documents.narrow(1, 1, T - 1)));
  }
  is_last.select(1, -1).fill_(true);
  const auto last = is_last.flatten().nonzero().flatten().cpu();
  return at::diff(last, /*n=*/1, /*dim=*/-1, /*prepend=*/at::full({1}, -1, last.options()));
}

at::Tensor known_documents(const at::Tensor& tokens, std::optional<std::int64_t> end, const at::Tensor& documents) {
  if (tokens.is_meta()) return at::zeros_like(tokens);
  const auto lengths = document_lengths(tokens, end, documents);
  return at::arange(lengths.numel(), at::kLong).repeat_interleave(lengths).view(tokens.sizes());
}

at::Tensor document_bounds(const at::Tensor& lengths, at::Device device) {
  auto bounds = at::zeros({lengths.size(0) + 1}, at::TensorOptions().dtype(at::kInt).pinned_memory(true));
  bounds.slice(0, 1).copy_(lengths.cumsum(0));
  return bounds.to(device, /*non_blocking=*/true);
}

at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& lengths,
                              const at::Tensor& bounds) {
  const auto B = q.size(0), T = q.size(2);
  if (lengths.size(0) == B) return causal_attention(q, k, v);
  const auto flatten_batch = [](const at::Tensor& heads) {
    return heads.transpose(1, 2).flatten(0, 1);
  };  // [B * T, heads, E]
  const auto queries = flatten_batch(q), keys = flatten_batch(k), values = flatten_batch(v);
  const auto sizes = sizes_of(lengths);
  const auto out = bounds.defined() && attends_within_documents(queries, keys, values)
                       ? causal_attention(queries, keys, values, {bounds, *std::ranges::max_element(sizes)})
                       : one_after_the_other(queries, keys, values, sizes);
  return out.unflatten(0, {B, T}).transpose(1, 2);
}

}  // namespace titan::nn
