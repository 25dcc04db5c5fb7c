// product_tool INSTRUCTIONS TOKENS IN OUT: for benchmarks/product_rates.py. Prints a line for each way to multiply the
// matrices of a linear layer: its name, and the GFLOP/s of one thread in forward and in backward.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul/matmul_kernel.h"
#include "kernels/mkl_path.h"

namespace titan::kernels {
namespace {

using Product = std::function<at::Tensor(const at::Tensor& left, const at::Tensor& right)>;

const std::map<std::string, Isa> kSets = {
    {"avx2", Isa::kAvx2}, {"avx512", Isa::kAvx512}, {"avx512_bf16", Isa::kAvx512Bfloat16}, {"all", Isa::kAll}};

at::Tensor own(const MatmulKernels& kernels, const at::Tensor& left, const at::Tensor& right) {
  const at::Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  matmul(kernels, left, right, out);
  return out;
}

at::Tensor widened(const at::Tensor& left, const at::Tensor& right) {
  return at::mm(left.to(at::kFloat), right.to(at::kFloat)).to(left.scalar_type());
}

at::Tensor in_aten(const at::Tensor& left, const at::Tensor& right) { return at::mm(left, right); }

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Returns the best time of a first run and of 0.3 seconds of further runs; the first run's if it alone takes longer.
double best_seconds(const std::function<void()>& run) {
  constexpr double kSpend = 0.3;
  const double first = seconds_of(run);
  if (first > kSpend) return first;
  double best = first;
  for (double spent = 0; spent < kSpend;) {
    const double seconds = seconds_of(run);
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

void print_rates(const std::string& name, at::ScalarType dtype, const Product& product,
                 const std::array<std::int64_t, 3>& shape) {
  const auto [tokens, in, out] = shape;
  const at::Tensor input = at::randn({tokens, in}).to(dtype), weight = at::randn({out, in}).to(dtype),
                   gradient = at::randn({tokens, out}).to(dtype);
  const double flops = 2e-9 * static_cast<double>(tokens * in * out);
  const double forward = best_seconds([&] { product(input, weight.t()); });
  const double backward = best_seconds([&] {
    product(gradient, weight);
    product(gradient.t(), input);
  });
  std::printf("%s\t%.1f\t%.1f\n", name.c_str(), flops / forward, 2 * flops / backward);
}

void print_all(const std::array<std::int64_t, 3>& shape) {
  const MatmulKernels& vectors = TITAN_BEST_KERNELS(kMatmul);
  const auto with = [](const MatmulKernels& kernels) {
    return [&kernels](const at::Tensor& left, const at::Tensor& right) { return own(kernels, left, right); };
  };
  print_rates("float32 MKL", at::kFloat, in_aten, shape);
  for (const auto& [name, dtype] : {std::pair("bfloat16", at::kBFloat16), std::pair("float16", at::kHalf)}) {
    const std::string start = std::string(name) + " ";
    print_rates(start + "ours, vectors", dtype, with(vectors), shape);
    print_rates(start + "widened, MKL", dtype, widened, shape);
    print_rates(start + "ATen", dtype, in_aten, shape);
  }
#if defined(__x86_64__)
  if (has_bfloat16_tiles()) print_rates("bfloat16 ours, tiles", at::kBFloat16, with(amx::kMatmul), shape);
#endif
}

}  // namespace
}  // namespace titan::kernels

int main(int argc, char** argv) {
  using namespace titan::kernels;
  if (argc != 5 || !kSets.contains(argv[1])) {
    std::fprintf(stderr, "product_tool avx2|avx512|avx512_bf16|all TOKENS IN OUT\n");
    return 2;
  }
  limit_instructions(kSets.at(argv[1]));
  choose_mkl_path(MklPath::kByInstructions);
  at::set_num_threads(1);
  const c10::InferenceMode no_autograd;
  print_all({std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])});
  return 0;
}
