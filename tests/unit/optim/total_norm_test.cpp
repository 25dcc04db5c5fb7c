#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "optim/clip_grad_norm.h"

namespace titan::optim {
namespace {

// Two of the gradients are larger than what ATen gives a thread, and one has no elements.
std::vector<at::Tensor> drawn_grads() {
  const auto generator = at::detail::createCPUGenerator(11);
  std::vector<at::Tensor> grads;
  for (const std::int64_t numel : {1, 70001, 1000, 0, 200003, 64}) grads.push_back(at::randn({numel}, generator));
  return grads;
}

void expect_each_as_aten(const std::vector<at::Tensor>& grads, double norm_type) {
  std::vector<ShardedGrad> parts;
  for (const auto& grad : grads) parts.push_back({grad, {}});
  const Clip clip = clip_factor(parts, /*max_norm=*/1.0, norm_type, /*error_if_nonfinite=*/true);
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const auto expected = grads[i].numel() > 0 ? at::linalg_vector_norm(grads[i], norm_type).item<float>() : 0.0F;
    EXPECT_EQ(clip.each[static_cast<std::int64_t>(i)].item<float>(), expected) << i << " of order " << norm_type;
  }
}

TEST(TotalNorm, IsOfATensNormsOnAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  auto grads = drawn_grads();
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    for (const double norm_type : {2.0, 1.0, 3.0}) expect_each_as_aten(grads, norm_type);
  }
  grads.push_back(at::arange(60000.0F).view({200, 300}).t());
  expect_each_as_aten(grads, 2.0);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace titan::optim
