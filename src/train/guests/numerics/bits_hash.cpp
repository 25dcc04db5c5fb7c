#include "train/guests/numerics/bits_hash.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/cpu/rows/words_kernel.h"

namespace titan::train {
namespace {

constexpr std::int64_t kWordBytes = 8;
// On the host a part, its factors and its products stay in the cache, and take little memory beside a step's; on a
// device a part is worth its kernels.
constexpr std::int64_t kWordsOnHost = std::int64_t{1} << 14, kWordsOnDevice = std::int64_t{1} << 21;

constexpr auto kOfPlace = static_cast<std::int64_t>(0x9E3779B97F4A7C15U);
constexpr auto kOfFactor = static_cast<std::int64_t>(0xBF58476D1CE4E5B9U);
constexpr auto kOfPart = static_cast<std::int64_t>(0x94D049BB133111EBU);

std::int64_t words_of_part(at::Device device) { return device.is_cpu() ? kWordsOnHost : kWordsOnDevice; }

// Returns odd numbers that look random.
at::Tensor make_factors(at::Device device) {
  auto factors = at::arange(1, words_of_part(device) + 1, at::TensorOptions().dtype(at::kLong).device(device));
  factors.mul_(kOfPlace);
  factors.bitwise_xor_(at::bitwise_right_shift(factors, 32)).mul_(kOfFactor);
  return factors.bitwise_or_(1);
}

// Returns bytes as words, the last one filled up with zeros. Copies them if they do not begin at a word.
at::Tensor as_words(const at::Tensor& bytes) {
  const std::int64_t rest = bytes.numel() % kWordBytes;
  if (rest > 0) return at::constant_pad_nd(bytes, {0, kWordBytes - rest}).view(at::kLong);
  const bool is_aligned = bytes.storage_offset() % kWordBytes == 0 &&
                          reinterpret_cast<std::uintptr_t>(bytes.const_data_ptr()) % kWordBytes == 0;
  return (is_aligned ? bytes : bytes.clone()).view(at::kLong);
}

}  // namespace

at::Tensor BitsHash::operator()(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (tensor.numel() == 0) return at::zeros({}, at::TensorOptions().dtype(at::kLong).device(tensor.device()));
  const auto bytes = tensor.detach().contiguous().view({-1}).view(at::kByte);
  if (plain_ || !bytes.is_cpu()) return by_operators(bytes);
  return at::scalar_tensor(static_cast<std::int64_t>(on_host(bytes)), at::kLong);
}

at::Tensor BitsHash::by_operators(const at::Tensor& bytes) {
  auto hash = at::zeros({}, at::TensorOptions().dtype(at::kLong).device(bytes.device()));
  const std::int64_t bytes_of_part = words_of_part(bytes.device()) * kWordBytes;
  const auto& [factors, products] = workspace_on(bytes.device());
  for (std::int64_t begin = 0; begin < bytes.numel(); begin += bytes_of_part) {
    const auto words = as_words(bytes.narrow(0, begin, std::min(bytes_of_part, bytes.numel() - begin)));
    auto product = products.narrow(0, 0, words.numel());
    // The upper half is mixed into the lower one: of the highest bits alone, every odd factor leaves the same.
    at::bitwise_right_shift_out(product, words, 32);
    product.bitwise_xor_(words).mul_(factors.narrow(0, 0, words.numel()));
    hash.mul_(kOfPart).add_(product.sum());
  }
  return hash;
}

// The same in one pass of a kernel. The last word may not be full; it belongs to the last part.
std::uint64_t BitsHash::on_host(const at::Tensor& bytes) {
  const auto* const factors =
      reinterpret_cast<const std::uint64_t*>(workspace_on(bytes.device()).factors.const_data_ptr<std::int64_t>());
  const auto* const begin = bytes.const_data_ptr<std::uint8_t>();
  const std::int64_t words = bytes.numel() / kWordBytes, rest = bytes.numel() % kWordBytes;
  const std::int64_t all_words = words + (rest > 0 ? 1 : 0);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>((all_words + kWordsOnHost - 1) / kWordsOnHost), 0);
  const std::span all(sums);
  const auto full = all.first(static_cast<std::size_t>((words + kWordsOnHost - 1) / kWordsOnHost));
  const auto& kernels = kernels::best_word_sums();
  if (!full.empty()) kernels::sum_words(kernels, words, begin, {factors, std::size_t{kWordsOnHost}}, full);
  if (rest > 0) {
    std::uint64_t last = 0;
    std::memcpy(&last, begin + words * kWordBytes, static_cast<std::size_t>(rest));
    sums.back() += kernels.sum(1, &last, factors + words % kWordsOnHost);
  }
  std::uint64_t hash = 0;
  for (const std::uint64_t sum : sums) hash = hash * static_cast<std::uint64_t>(kOfPart) + sum;
  return hash;
}

BitsHash::Workspace& BitsHash::workspace_on(at::Device device) {
  const auto found = std::ranges::find(workspaces_, device, [](const auto& each) { return each.first; });
  if (found != workspaces_.end()) return found->second;
  auto factors = make_factors(device);
  auto products = at::empty_like(factors);
  return workspaces_.emplace_back(device, Workspace{std::move(factors), std::move(products)}).second;
}

}  // namespace titan::train
