// Flash attention as on a GPU, for a batch and for documents that are stored one after the other. The CPU only has it
// for a batch, under another name and with fewer results.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/simulated_device/parts.h"

namespace titan::sim {
namespace {

// Chooses among the kernels that the user allows. It prefers flash attention, which is the one that this device has.
std::int64_t choose_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                              double, bool, std::optional<double>, bool) {
  const auto& context = at::globalContext();
  if (context.userEnabledFlashSDP()) return static_cast<std::int64_t>(at::SDPBackend::flash_attention);
  if (context.userEnabledCuDNNSDP()) return static_cast<std::int64_t>(at::SDPBackend::cudnn_attention);
  return static_cast<std::int64_t>(at::SDPBackend::math);
}

using FlashResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                               at::Tensor, at::Tensor>;

FlashResult flash_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double dropout,
                            bool is_causal, bool, std::optional<double> scale) {
  auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, is_causal, {}, scale);
  return {out, sums, {}, {}, q.sym_size(2), k.sym_size(2), {}, {}, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
    const at::Tensor& sums, const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double dropout,
    bool is_causal, const at::Tensor&, const at::Tensor&, std::optional<double> scale) {
  return at::_scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, out, sums, dropout, is_causal, {},
                                                                  scale);
}

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

std::vector<std::int64_t> sizes_from(const at::Tensor& bounds) {
  const auto host = on_host(bounds);
  const auto* const at = host.const_data_ptr<std::int32_t>();
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 1; i < host.numel(); ++i) sizes.push_back(at[i] - at[i - 1]);
  return sizes;
}

// Splits [N, heads, E] into [1, `heads`, length, E] per document, float32, and repeats heads to have one per query
// head.
std::vector<at::Tensor> documents_of(const at::Tensor& all, const std::vector<std::int64_t>& sizes,
                                     std::int64_t heads) {
  std::vector<at::Tensor> out;
  const auto wide = on_host(all).to(at::kFloat).repeat_interleave(heads / all.size(1), 1);
  for (const auto& document : wide.split_with_sizes(sizes)) out.push_back(document.transpose(0, 1).unsqueeze(0));
  return out;
}

void note(const std::string& kernel, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
  std::vector<Use> uses;
  for (const auto& input : inputs) uses.push_back({bytes_of(input), false, "an input"});
  for (const auto& output : outputs) uses.push_back({bytes_of(output), true, "an output"});
  State::get().queue(current_stream(), kernel, uses);
}

at::Tensor join_documents(const std::vector<at::Tensor>& documents) {
  std::vector<at::Tensor> rows;
  for (const auto& document : documents) rows.push_back(document.squeeze(0).transpose(0, 1));
  return at::cat(rows);
}

using WithinResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Newer series of torch have more arguments at the end, which the program does not pass: `More`.
template <typename... More>
WithinResult flash_attention_within(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const std::optional<at::Tensor>& bounds, const std::optional<at::Tensor>&,
                                    c10::SymInt, c10::SymInt, double dropout, bool is_causal, bool,
                                    std::optional<double> scale, std::optional<c10::SymInt>, std::optional<c10::SymInt>,
                                    const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, More...) {
  const auto sizes = sizes_from(*bounds);
  const auto heads = q.size(1);
  const auto queries = documents_of(q, sizes, heads), keys = documents_of(k, sizes, heads);
  const auto values = documents_of(v, sizes, heads);
  std::vector<at::Tensor> outs, all_sums;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    auto [out, sums] =
        at::_scaled_dot_product_flash_attention_for_cpu(queries[i], keys[i], values[i], dropout, is_causal, {}, scale);
    outs.push_back(out);
    all_sums.push_back(sums.squeeze(0));
  }
  const auto out = to_device(join_documents(outs).to(q.scalar_type()).contiguous());
  const auto sums = to_device(at::cat(all_sums, 1).contiguous());
  const auto random = to_device(at::zeros({2}, at::kLong)), unused = to_device(at::zeros({0}, at::kLong));
  note("aten::_flash_attention_forward", {q, k, v, *bounds}, {out, sums});
  return {out, sums, random, unused, unused};
}

Gradients flash_attention_within_backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const at::Tensor& out, const at::Tensor& sums,
                                          const at::Tensor& bounds, const at::Tensor&, c10::SymInt, c10::SymInt,
                                          double dropout, bool is_causal, const at::Tensor&, const at::Tensor&,
                                          std::optional<double> scale, std::optional<c10::SymInt>,
                                          std::optional<c10::SymInt>) {
  const auto sizes = sizes_from(bounds);
  const auto heads = q.size(1);
  const auto of = [&](const at::Tensor& all) { return documents_of(all, sizes, heads); };
  const auto grads = of(grad), queries = of(q), keys = of(k), values = of(v), outs = of(out);
  const auto host_sums = on_host(sums).split_with_sizes(sizes, 1);
  std::vector<at::Tensor> of_q, of_k, of_v;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    auto [one, two, three] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        grads[i], queries[i], keys[i], values[i], outs[i], host_sums[i].unsqueeze(0).contiguous(), dropout, is_causal,
        {}, scale);
    of_q.push_back(one), of_k.push_back(two), of_v.push_back(three);
  }
  const auto finish = [](const std::vector<at::Tensor>& documents, const at::Tensor& like) {
    const auto whole =
        join_documents(documents).unflatten(1, {like.size(1), -1}).sum(2);  // over the query heads of a head
    return to_device(whole.to(like.scalar_type()).contiguous());
  };
  Gradients result = {finish(of_q, q), finish(of_k, k), finish(of_v, v)};
  note("aten::_flash_attention_backward", {grad, q, k, v, out, sums, bounds},
       {std::get<0>(result), std::get<1>(result), std::get<2>(result)});
  return result;
}

}  // namespace

void install_attention() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library.impl("_fused_sdp_choice", choose_attention);
  library.impl("_scaled_dot_product_flash_attention", flash_attention);
  library.impl("_scaled_dot_product_flash_attention_backward", flash_attention_backward);
  using FlashAttention = at::_ops::_flash_attention_forward::schema;
  library.impl("_flash_attention_forward", static_cast<FlashAttention*>(flash_attention_within));
  library.impl("_flash_attention_backward", flash_attention_within_backward);
}

}  // namespace titan::sim

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &titan::sim::choose_attention)
}
