#include "apps/doctor/products.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "apps/doctor/best_seconds.h"
#include "base/text.h"
#include "distributed/config_dtype.h"
#include "train/slow_products.h"

namespace titan::doctor {
namespace {

constexpr double kMuchSlower = 1.5;

// Size of a linear layer and its number of tokens.
struct LayerShape {
  std::int64_t tokens, in, out;
  double flops() const { return 2.0 * static_cast<double>(tokens * in * out); }
};

// Returns a small layer on a CPU, where a slow dtype can take a hundred times as long.
LayerShape shape_for(c10::Device device) {
  return device.is_cpu() ? LayerShape{512, 256, 1024} : LayerShape{8192, 8192, 8192};
}

ProductRate measure(c10::Device device, const std::string& dtype) {
  const LayerShape shape = shape_for(device);
  const auto options = at::TensorOptions().dtype(dist::dtype_of(dtype)).device(device);
  const auto input = at::ones({shape.tokens, shape.in}, options);
  const auto weight = at::ones({shape.out, shape.in}, options);
  const auto grad_output = at::ones({shape.tokens, shape.out}, options);
  const double forward = best_seconds(device, [&] { at::mm(input, weight.t()); });
  const double backward = best_seconds(device, [&] {
    at::mm(grad_output, weight);
    at::mm(grad_output.t(), input);
  });
  return {dtype, shape.flops() / forward, 2 * shape.flops() / backward};
}

// Returns the seconds of a step's matmuls per FLOP of forward; backward has twice as many FLOPs.
double step_seconds(const ProductRate& rate) { return 1 / rate.forward + 2 / rate.backward; }

std::string to_text(const ProductRate& rate) {
  const auto short_number = [](double flops) {
    const double giga = flops / 1e9;
    return giga < 9.95 ? fmt::format("{:.1f}", giga) : with_thousands(static_cast<std::int64_t>(giga + 0.5));
  };
  return fmt::format("{}: {} forward, {} backward", rate.dtype, short_number(rate.forward),
                     short_number(rate.backward));
}

}  // namespace

std::vector<ProductRate> measure_products(c10::Device device) {
  const c10::InferenceMode no_autograd;
  std::vector<ProductRate> rates;
  for (const char* dtype : {"float32", "bfloat16", "float16"}) rates.push_back(measure(device, dtype));
  return rates;
}

std::vector<ProductRate> slowest_products(dist::ProcessGroup& group, std::vector<ProductRate> own) {
  for (ProductRate& rate : own) {
    auto lowest = at::tensor({-rate.forward, -rate.backward}, at::kDouble);
    group.all_reduce(lowest, dist::ReduceOp::kMax).wait();
    rate.forward = -lowest[0].item<double>();
    rate.backward = -lowest[1].item<double>();
  }
  return own;
}

Check check_products(const std::vector<ProductRate>& rates, const std::string& dtype) {
  std::vector<std::string> texts;
  for (const ProductRate& rate : rates) texts.push_back(to_text(rate));
  const std::string found = join(texts, "; ") + " (GFLOP/s)";
  const ProductRate& configured = *std::ranges::find(rates, dtype, &ProductRate::dtype);
  const ProductRate& fastest = *std::ranges::min_element(rates, {}, step_seconds);
  const double ratio = step_seconds(configured) / step_seconds(fastest);
  if (ratio < kMuchSlower) return ok("products", found);
  const std::string own =
      train::has_fast_products(dist::dtype_of(dtype)) ? "" : ", or cpu.kernels = \"own\", whose products are fast";
  return warning("products", fmt::format("{}; {} takes {:.1f} times as long as {}", found, dtype, ratio, fastest.dtype),
                 fmt::format("set training.mixed_precision_param = \"{}\"{}", fastest.dtype, own));
}

}  // namespace titan::doctor
