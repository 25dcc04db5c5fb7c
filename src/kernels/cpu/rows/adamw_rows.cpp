// Compiled with TITAN_ISA (the namespace) and TITAN_VECTOR_BYTES, and without contraction, see CMakeLists.txt: results
// equal ATen's to the bit only if the same multiply-adds are fused.
#include "kernels/cpu/rows/adamw_rows.h"

#include <cmath>
#include <type_traits>

#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

// a * b + c, rounded once where ATen's code for the same instructions has a fused multiply-add, else twice.
#if TITAN_VECTOR_BYTES == 64
Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
double multiply_add(double a, double b, double c) { return std::fma(a, b, c); }
Vector square_root(Vector x) { return _mm512_maskz_sqrt_ps(0xFFFF, x); }
#elif TITAN_VECTOR_BYTES == 32
Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
double multiply_add(double a, double b, double c) { return std::fma(a, b, c); }
Vector square_root(Vector x) { return _mm256_sqrt_ps(x); }
#else
Vector multiply_add(Vector a, Vector b, Vector c) { return a * b + c; }
double multiply_add(double a, double b, double c) { return a * b + c; }
Vector square_root(Vector x) {
  for (Index i = 0; i < kWidth; ++i) x[i] = std::sqrt(x[i]);
  return x;
}
#endif

// Factors of one step, each computed in double and rounded once.
struct Factors {
  float decay;             // multiplies the parameter
  bool from_grad;          // interpolate the first moment from the gradient, else from the old moment: the nearer end
  float first_weight;      // interpolation weight, from that end
  float beta2, sq_weight;  // factors of the old second moment, and of the gradient's square
  float root_correction;   // divides the root of the second moment
  float eps;
  float descent;  // multiplies the first moment; below 0
};

Factors factors_of(const AdamWStep& step) {
  const double correction1 = 1 - std::pow(step.beta1, static_cast<double>(step.step));
  const double correction2 = 1 - std::pow(step.beta2, static_cast<double>(step.step));
  const auto weight = static_cast<float>(1 - step.beta1);
  const bool from_grad = !(std::abs(weight) < 0.5F);
  return {.decay = static_cast<float>(multiply_add(-step.lr, step.weight_decay, 1.0)),
          .from_grad = from_grad,
          .first_weight = from_grad ? weight - 1 : weight,
          .beta2 = static_cast<float>(step.beta2),
          .sq_weight = static_cast<float>(1 - step.beta2),
          .root_correction = static_cast<float>(std::sqrt(correction2)),
          .eps = static_cast<float>(step.eps),
          .descent = static_cast<float>(-(step.lr / correction1))};
}

// Adds up the bits of vectors.
class BitSum {
 public:
  void add(Vector value) { lanes_ = ((lanes_ << 1) | (lanes_ >> 31)) + reinterpret_cast<Words>(value); }
  // Adds a vector that has just been stored to `to`; the lanes beyond a part have no place there, and count as zeros.
  void add_stored(Vector value, const float* /*to*/, Whole) { add(value); }
  void add_stored(Vector /*value*/, const float* to, Part part) { add(load(to, part)); }

  std::uint64_t total() const {
    std::uint64_t total = 0;
    for (Index i = 0; i < kWidth; ++i) total = total * kAdamWSumFactor + lanes_[i];
    return total;
  }

 private:
  Words lanes_ = {};
};

struct BitSums {
  BitSum param, exp_avg, exp_avg_sq;

  AdamWSums totals() const { return {param.total(), exp_avg.total(), exp_avg_sq.total()}; }
};

// For an update whose bits nobody sums.
struct NoSums {};

// `kEnd`: for the elements left over after ATen's vectors. There ATen's compiler fused the other of the second moment's
// two multiplications with the addition. `Sums`: NoSums, or BitSums& to add to.
template <bool kEnd, typename Sums>
void update_range(Index begin, Index end, const AdamWShard& shard, const AdamWStep& step, const Factors& factors,
                  Sums read, Sums wrote) {
  for_vectors(begin, end, [&](Index j, auto lanes) {
    const Vector grad = load(shard.grad + j, lanes) * step.grad_factor;
    const Vector first = load(shard.exp_avg + j, lanes), second = load(shard.exp_avg_sq + j, lanes);
    const Vector exp_avg = multiply_add(grad - first, spread(factors.first_weight), factors.from_grad ? grad : first);
    const Vector weighted = grad * factors.sq_weight;
    const Vector exp_avg_sq = kEnd ? multiply_add(second, spread(factors.beta2), weighted * grad)
                                   : multiply_add(grad, weighted, second * factors.beta2);
    const Vector scale = square_root(exp_avg_sq) / factors.root_correction + factors.eps;
    const Vector old = load(shard.param + j, lanes), param = old * factors.decay + exp_avg * factors.descent / scale;
    store(shard.exp_avg + j, exp_avg, lanes);
    store(shard.exp_avg_sq + j, exp_avg_sq, lanes);
    store(shard.param + j, param, lanes);
    if constexpr (!std::is_same_v<Sums, NoSums>) {
      read.param.add(old);
      read.exp_avg.add(first);
      read.exp_avg_sq.add(second);
      wrote.param.add_stored(param, shard.param + j, lanes);
      wrote.exp_avg.add_stored(exp_avg, shard.exp_avg + j, lanes);
      wrote.exp_avg_sq.add_stored(exp_avg_sq, shard.exp_avg_sq + j, lanes);
    }
  });
}

template <typename Sums>
void update_all(Index count, const AdamWShard& shard, const AdamWStep& step, Sums read, Sums wrote) {
  const Factors factors = factors_of(step);
  const Index in_vectors = count - count % kAdamWUnit;
  update_range<false, Sums>(0, in_vectors, shard, step, factors, read, wrote);
  update_range<true, Sums>(in_vectors, count, shard, step, factors, read, wrote);
}

void update(Index count, const AdamWShard& shard, const AdamWStep& step) {
  update_all<NoSums>(count, shard, step, {}, {});
}

void update_and_sum(Index count, const AdamWShard& shard, const AdamWStep& step, AdamWSums& read, AdamWSums& wrote) {
  BitSums of_read, of_wrote;
  update_all<BitSums&>(count, shard, step, of_read, of_wrote);
  read = of_read.totals();
  wrote = of_wrote.totals();
}

std::uint64_t sum(Index count, const float* values) {
  BitSum out;
  const auto add = [&](Index j, auto lanes) { out.add(load(values + j, lanes)); };
  const Index in_vectors = count - count % kAdamWUnit;  // the vectors are those of an update
  for_vectors(0, in_vectors, add);
  for_vectors(in_vectors, count, add);
  return out.total();
}

}  // namespace

extern const AdamWKernels kAdamW = {TITAN_STRING(TITAN_ISA), update, update_and_sum, sum};

}  // namespace titan::kernels::TITAN_ISA
