#include "distributed/tensor/dtensor_check.h"

#include <ATen/ATen.h>

#include <functional>
#include <string>

#include "base/error.h"

namespace titan::dist {
namespace {

std::string meta_text(const at::Tensor& local, const Sharding& sharding) {
  return std::string(c10::toString(local.scalar_type())) + " of global shape " +
         shape_text(sharding.spec.global_shape) + " under " + placements_text(sharding.placements);
}

// Returns how the shape of the local tensor differs from its box; empty if it does not.
std::string shape_fault(const at::Tensor& local, const Sharding& sharding) {
  if (local.sizes().vec() == sharding.spec.local_shape) return "";
  return "expected a local tensor of shape " + shape_text(sharding.spec.local_shape) + ", found " +
         shape_text(local.sizes());
}

// Gathers one string from every rank of the mesh, in the mesh's order. Starts with the mesh's last axis; each further
// axis gathers the results so far, concatenated as "length:bytes".
std::vector<std::string> gather_over(const DeviceMesh& mesh, const std::string& mine) {
  std::string packed = std::to_string(mine.size()) + ":" + mine;
  for (auto name = mesh.axis_names().rbegin(); name != mesh.axis_names().rend(); ++name) {
    std::string joined;
    for (const auto& part : mesh.group(*name).all_gather_bytes(packed)) joined += part;
    packed = std::move(joined);
  }
  std::vector<std::string> out;
  for (std::size_t at = 0; at < packed.size();) {
    const std::size_t colon = packed.find(':', at);
    const std::size_t length = std::stoul(packed.substr(at, colon - at));
    out.push_back(packed.substr(colon + 1, length));
    at = colon + 1 + length;
  }
  return out;
}

std::string bytes_of(const at::Tensor& local) {
  const auto host = local.contiguous().cpu();
  return {static_cast<const char*>(host.data_ptr()), host.nbytes()};
}

at::Tensor tensor_of(std::string& bytes, const at::Tensor& like) {
  return at::from_blob(bytes.data(), {like.numel()}, at::TensorOptions().dtype(like.scalar_type())).clone();
}

std::string index_text(std::int64_t flat, at::IntArrayRef shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return shape_text(index);
}

std::string rank_text(const DeviceMesh& mesh, std::size_t place) {
  return "rank " + std::to_string(mesh.ranks()[place]);
}

void compare_meta(const at::Tensor& local, const Sharding& sharding) {
  const auto& mesh = sharding.mesh;
  const auto metas = gather_over(mesh, meta_text(local, sharding));
  const auto faults = gather_over(mesh, shape_fault(local, sharding));
  for (std::size_t r = 0; r < metas.size(); ++r) {
    if (metas[r] != metas[0]) {
      throw DistError(rank_text(mesh, r) + ": expected " + metas[0] + " like " + rank_text(mesh, 0) + ", found " +
                      metas[r]);
    }
    if (!faults[r].empty()) throw DistError(rank_text(mesh, r) + ": " + faults[r] + " (" + metas[r] + ")");
  }
}

[[noreturn]] void throw_values_differ(const at::Tensor& local, const Sharding& sharding, std::size_t place,
                                      std::size_t first) {
  auto all = gather_over(sharding.mesh, bytes_of(local));
  const auto expected = tensor_of(all[first], local);
  const auto found = tensor_of(all[place], local);
  const auto unequal = expected.ne(found).nonzero();
  // Different bits may compare equal: zeros of opposite sign.
  const std::int64_t at = unequal.numel() > 0 ? unequal[0].item<std::int64_t>() : 0;
  const auto shape = box_of(sharding.spec.global_shape, sharding.mesh.shape(),
                            sharding.mesh.coordinate_of(static_cast<int>(place)), sharding.placements)
                         .local_shape;
  throw DistError(rank_text(sharding.mesh, place) + ": replicated values differ: expected " +
                  std::to_string(expected[at].item<double>()) + " at " + index_text(at, shape) + " like " +
                  rank_text(sharding.mesh, first) + ", found " + std::to_string(found[at].item<double>()) + " (" +
                  meta_text(local, sharding) + ")");
}

void compare_values(const at::Tensor& local, const Sharding& sharding) {
  const auto& mesh = sharding.mesh;
  const auto digests = gather_over(mesh, std::to_string(std::hash<std::string>()(bytes_of(local))));
  std::size_t stride = digests.size();
  for (std::size_t m = 0; m < sharding.placements.size(); ++m) {
    const auto size = static_cast<std::size_t>(mesh.shape()[m]);
    stride /= size;
    if (!std::holds_alternative<Replicate>(sharding.placements[m])) continue;
    for (std::size_t r = 0; r < digests.size(); ++r) {
      const std::size_t first = r - r / stride % size * stride;  // the same coordinate, but 0 along mesh axis m
      if (digests[r] != digests[first]) throw_values_differ(local, sharding, r, first);
    }
  }
}

}  // namespace

void check_ranks_agree(const at::Tensor& local, const Sharding& sharding) {
  compare_meta(local, sharding);
  compare_values(local, sharding);
}

}  // namespace titan::dist
