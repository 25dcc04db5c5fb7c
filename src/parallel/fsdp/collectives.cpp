#include "parallel/fsdp/collectives.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/memory/stream_copy.h"

namespace titan::fsdp {
namespace {

std::int64_t total_numel(const std::vector<FsdpParam*>& params) {
  std::int64_t total = 0;
  for (const auto* param : params) total += param->chunk_numel();
  return total;
}

// True if at::_chunk_cat copies in one pass, with padding and the cast of bfloat16 to float32: on CUDA, for shard dim
// 0. On CPU it takes several passes.
bool has_fused_chunk_cat(const std::vector<FsdpParam*>& params, const at::Tensor& grad, at::ScalarType reduce_dtype) {
  const bool dtypes =
      grad.scalar_type() == reduce_dtype || (grad.scalar_type() == at::kBFloat16 && reduce_dtype == at::kFloat);
  return !grad.is_cpu() && dtypes &&
         std::all_of(params.begin(), params.end(), [](const auto* param) { return param->shard_dim() == 0; });
}

// Returns the dtype to send: a widening cast that changes no value is left to the reader.
at::ScalarType dtype_to_send(at::ScalarType grad_dtype, at::ScalarType reduce_dtype) {
  const bool is_half = grad_dtype == at::kBFloat16 || grad_dtype == at::kHalf;
  return is_half && reduce_dtype == at::kFloat ? grad_dtype : reduce_dtype;
}

// Fills row [total] with the chunks of all gradients for `rank`.
void copy_grad_chunks(const std::vector<FsdpParam*>& params, const std::vector<at::Tensor>& grads, int rank,
                      const at::Tensor& row) {
  std::vector<at::Tensor> targets, chunks;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const auto chunk = params[i]->grad_chunk(grads[i], rank);
    const auto padded = row.narrow(0, offset, params[i]->chunk_numel());
    offset += padded.numel();
    if (chunk.numel() > 0) {
      targets.push_back(padded.narrow(0, 0, chunk.numel()).view(chunk.sizes()));
      chunks.push_back(chunk);
    }
    if (chunk.numel() < padded.numel()) padded.slice(0, chunk.numel()).zero_();
  }
  kernels::copy_past_caches(targets, chunks);
}

// Returns the dtype of an all-gather's buffers: that of all parameters, or bytes if some are gathered in float8, which
// not every backend knows.
at::ScalarType unit_of(const std::vector<FsdpParam*>& params) {
  const bool has_float8 = std::ranges::any_of(params, &FsdpParam::gathers_in_float8);
  return has_float8 ? at::kByte : params.front()->param_dtype();
}

// Returns how many of those a rank sends of a parameter.
std::int64_t num_units(const FsdpParam& param, at::ScalarType unit) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(param.gather_dtype()));
  return param.send_numel() * size / static_cast<std::int64_t>(c10::elementSize(unit));
}

std::int64_t total_units(const std::vector<FsdpParam*>& params, at::ScalarType unit) {
  std::int64_t total = 0;
  for (const auto* param : params) total += num_units(*param, unit);
  return total;
}

at::Tensor viewed_as(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.scalar_type() == dtype ? tensor : tensor.view(dtype);
}

// Copies all ranks' `parts`, [total] units each, to the parameters' gathered storage.
void copy_out_parts(const std::vector<at::Tensor>& parts, const std::vector<FsdpParam*>& params) {
  const auto ranks = static_cast<std::int64_t>(parts.size());
  const auto unit = unit_of(params);
  std::vector<at::Tensor> targets, sources;
  std::int64_t offset = 0;
  for (auto* param : params) {
    const auto units = num_units(*param, unit);
    const auto target = param->gather_target(static_cast<int>(ranks));
    std::vector<at::Tensor> chunks;
    for (const auto& part : parts) chunks.push_back(part.narrow(0, offset, units));
    if (target.defined()) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) targets.push_back(viewed_as(target[rank], unit));
      sources.insert(sources.end(), chunks.begin(), chunks.end());
    } else {
      param->copy_out(viewed_as(at::stack(chunks), param->gather_dtype()));
    }
    offset += units;
  }
  kernels::copy_past_caches(targets, sources);
}

// Copies and casts this rank's part of all parameters into `targets`, in units; one kernel on CUDA, and one for those
// that are rounded to float8.
void copy_in_shards(const std::vector<FsdpParam*>& params, const std::vector<at::Tensor>& targets) {
  std::vector<at::Tensor> to, from, to_bytes, bytes;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (params[i]->gathers_in_float8()) {
      to_bytes.push_back(targets[i]);
      bytes.push_back(params[i]->send_buffer().view(at::kByte));
    } else {
      to.push_back(viewed_as(targets[i], params[i]->gather_dtype()));
      from.push_back(params[i]->send_buffer());
    }
  }
  kernels::copy_past_caches(to, from);
  kernels::copy_past_caches(to_bytes, bytes);
}

// Returns the parameters' offsets in a shared output, in units, and its end. The output has the parts of all ranks,
// parameter by parameter, each parameter at a multiple of 64 bytes.
std::vector<std::int64_t> offsets_in_place(const std::vector<FsdpParam*>& params, int world_size) {
  const auto unit = unit_of(params);
  const auto step = 64 / static_cast<std::int64_t>(c10::elementSize(unit));
  std::vector<std::int64_t> offsets = {0};
  for (const auto* param : params)
    offsets.push_back((offsets.back() + world_size * num_units(*param, unit) + step - 1) / step * step);
  return offsets;
}

AllGatherResult start_in_place(const std::vector<FsdpParam*>& params, dist::ProcessGroup& group,
                               const at::TensorOptions& options, std::vector<std::int64_t> offsets) {
  const auto unit = options.dtype().toScalarType();
  const auto write = [params, offsets, unit, rank = group.rank()](const at::Tensor& output) {
    std::vector<at::Tensor> targets;
    for (std::size_t i = 0; i < params.size(); ++i) {
      const auto units = num_units(*params[i], unit);
      targets.push_back(output.narrow(0, offsets[i] + rank * units, units));
    }
    copy_in_shards(params, targets);
  };
  auto [output, work] = group.all_gather_in_place(offsets.back(), options, total_units(params, unit), write);
  return {.output = std::move(output), .work = std::move(work), .offsets = std::move(offsets)};
}

void take_in_place(const AllGatherResult& result, const std::vector<FsdpParam*>& params, int world_size) {
  const auto unit = unit_of(params);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const auto units = result.output.narrow(0, result.offsets[i], world_size * num_units(*params[i], unit));
    const auto parts = viewed_as(units, params[i]->gather_dtype());
    if (params[i]->take_gathered(parts)) continue;
    params[i]->gather_target(world_size);
    params[i]->copy_out(parts.view({world_size, -1}));
  }
}

}  // namespace

std::vector<at::Tensor> split_as(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  std::int64_t offset = 0;
  for (const auto& tensor : tensors) {
    parts.push_back(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
  return parts;
}

AllGatherResult start_all_gather(const std::vector<FsdpParam*>& params, dist::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  for (const auto* param : params)
    TITAN_CHECK(param->param_dtype() == params.front()->param_dtype(),
                param->fqn() + " has another compute dtype than the rest of its group");
  const auto unit = unit_of(params);
  const auto total = total_units(params, unit);
  const auto options = at::TensorOptions().dtype(unit).device(params.front()->devices().compute);
  const bool is_zero_copy = group.shares_memory(options.device());
  if (is_zero_copy) {
    auto offsets = offsets_in_place(params, group.size());
    if (group.gathers_in_place(offsets.back(), options)) {
      return start_in_place(params, group, options, std::move(offsets));
    }
  }
  AllGatherResult result;
  if (!is_zero_copy) result.output = at::empty({total * group.size()}, options);
  const auto input =
      is_zero_copy ? group.exchange_buffer(total, options) : result.output.narrow(0, group.rank() * total, total);
  std::vector<at::Tensor> targets;
  std::int64_t offset = 0;
  for (const auto* param : params) {
    targets.push_back(input.narrow(0, offset, num_units(*param, unit)));
    offset += num_units(*param, unit);
  }
  copy_in_shards(params, targets);
  result.work = is_zero_copy ? group.all_gather_parts(input) : group.all_gather(result.output, input);
  return result;
}

void finish_all_gather(AllGatherResult& result, const std::vector<FsdpParam*>& params, int world_size) {
  const at::NoGradGuard no_grad;
  if (!result.output.defined()) return copy_out_parts(result.work.wait_for_parts(), params);
  result.work.wait();
  if (!result.offsets.empty()) return take_in_place(result, params, world_size);
  const auto unit = unit_of(params);
  const auto by_rank = result.output.view({world_size, -1});
  std::vector<std::int64_t> sizes;
  std::vector<at::Tensor> targets;
  for (auto* param : params) {
    sizes.push_back(num_units(*param, unit));
    const auto target = param->gather_target(world_size);
    targets.push_back(target.defined() ? viewed_as(target, unit) : target);
  }
  const bool all_in_order = std::all_of(targets.begin(), targets.end(), [](const auto& t) { return t.defined(); });
  if (all_in_order) {
    at::split_with_sizes_copy_out(targets, by_rank, sizes, /*dim=*/1);  // one kernel on CUDA
    return;
  }
  const auto parts = by_rank.split_with_sizes(sizes, /*dim=*/1);
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (targets[i].defined()) {
      targets[i].copy_(parts[i]);
    } else {
      params[i]->copy_out(viewed_as(parts[i], params[i]->gather_dtype()));
    }
  }
}

ReduceScatterResult copy_in_gradients(const std::vector<FsdpParam*>& params, const std::vector<at::Tensor>& grads,
                                      at::ScalarType reduce_dtype, double divisor, const dist::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const int world_size = group.size();
  const std::int64_t total = total_numel(params);
  const auto options = grads.front().options().dtype(reduce_dtype);
  const bool in_place = group.shares_memory(options.device());
  ReduceScatterResult result;
  result.dtype = reduce_dtype;
  if (in_place) {
    const auto sent = options.dtype(dtype_to_send(grads.front().scalar_type(), reduce_dtype));
    result.input = group.exchange_buffer((world_size - 1) * total, sent);
    result.own = at::empty({total}, sent);
  } else {
    result.input = at::empty({world_size * total}, options);
  }
  if (has_fused_chunk_cat(params, grads.front(), reduce_dtype)) {
    auto by_rank = result.input.view({world_size, -1});
    at::_chunk_cat_out(by_rank, grads, /*dim=*/0, world_size);
  } else {
    std::int64_t offset = 0;
    for (int rank = 0; rank < world_size; ++rank) {
      const bool is_own = in_place && rank == group.rank();
      copy_grad_chunks(params, grads, rank, is_own ? result.own : result.input.narrow(0, offset, total));
      if (!is_own) offset += total;
    }
  }
  if (divisor != 1) {
    result.input.div_(divisor);
    if (in_place) result.own.div_(divisor);
  }
  return result;
}

void start_reduce_scatter(ReduceScatterResult& result, dist::ProcessGroup& group, dist::ReduceOp op) {
  if (result.own.defined()) {
    result.work = group.reduce_scatter_parts(result.own, result.input, result.dtype, op);
    return;
  }
  if (group.size() == 1) {
    result.output = result.input;
    return;
  }
  result.output = at::empty({result.input.numel() / group.size()}, result.input.options());
  result.work = group.reduce_scatter(result.output, result.input, op);
}

void finish_reduce_scatter(ReduceScatterResult& result) {
  if (!result.own.defined()) return result.work.wait();
  result.output = result.work.wait_for_parts().front();
  result.own.reset();
}

}  // namespace titan::fsdp
