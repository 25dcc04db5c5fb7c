// Tests attention of parts of a row, and their merge, against the formula in float64: with this program's kernels and
// with ATen's, which attend rectangles and causal squares only.
#include "nn/ops/part_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/operators.h"
#include "nn/ops/kept_ops.h"
#include "nn/ops/meta_kernels.h"
#include "nn/ops/meta_run.h"
#include "tests/unit/kernels/attention_formula.h"

namespace titan::nn {
namespace {

using kernels::attention_formula::expect_within;
using kernels::attention_formula::formula;
using kernels::attention_formula::Inputs;
using kernels::attention_formula::make_inputs;
using kernels::attention_formula::Results;

// While it lives, CPU and meta device have this program's kernels or none.
class UsesOwn {
 public:
  explicit UsesOwn(bool is_own) { use(is_own); }
  ~UsesOwn() { use(true); }
  UsesOwn(const UsesOwn&) = delete;
  UsesOwn& operator=(const UsesOwn&) = delete;

 private:
  static void use(bool is_own) {
    kernels::use_fused_kernels(c10::DeviceType::CPU, is_own);
    kernels::use_fused_kernels(c10::DeviceType::Meta, is_own);
  }
};

double scale_of(const at::Tensor& q) { return 1 / std::sqrt(static_cast<double>(q.size(3))); }

// float32: sums of up to 257 products in a chain of three, as for the kernels; merging adds a fourth, and a split key
// range one for each further part. 16 bits: ATen rounds weights and score gradients, 2^-8 (float16: 2^-11) each, and
// what attend_part() takes from merged parts was rounded once more; sums of gradients are rounded once per part.
double part_tolerance(at::ScalarType dtype) {
  if (dtype == at::kFloat) return 5e-6;
  return 5 * std::pow(2.0, dtype == at::kHalf ? -11 : -8);
}

// ATen's exponentials in 16 bits are as exact as the finer of these types.
double sums_tolerance(at::ScalarType dtype) { return dtype == at::kFloat ? 1e-6 : std::pow(2.0, -11); }

Results run(const Inputs& inputs, std::int64_t offset) {
  const auto [out, sums] = attend_part(inputs.q, inputs.k, inputs.v, offset);
  EXPECT_EQ(out.scalar_type(), inputs.q.scalar_type());
  EXPECT_EQ(sums.scalar_type(), at::kFloat);
  const auto [q, k, v] = attend_part_backward(inputs.out_grad, inputs.q, inputs.k, inputs.v, out, sums, offset);
  for (const auto& grad : {q, k, v}) EXPECT_EQ(grad.scalar_type(), inputs.q.scalar_type());
  return {out, sums, q, k, v};
}

struct Shape {
  std::int64_t queries, keys, offset, heads, kv_heads, dim;
};
// One key, causal squares, rectangles, both together, keys that no query sees, queries that see all keys below others
// that do not; head dims that this program's kernels take (16, 48) and do not take (8, 20).
constexpr Shape kShapes[] = {{1, 1, 0, 1, 1, 16},    {7, 1, 0, 2, 1, 8},      {33, 33, 0, 4, 2, 16},
                             {20, 50, 49, 2, 2, 20}, {20, 50, 48, 2, 2, 16},  {20, 50, 30, 4, 1, 8},
                             {20, 50, 10, 2, 1, 16}, {50, 20, 0, 2, 2, 8},    {50, 20, 5, 4, 2, 48},
                             {40, 70, 2, 3, 3, 20},  {64, 128, 64, 4, 2, 16}, {64, 128, 500, 2, 1, 8}};

std::string text_of(const Shape& shape, at::ScalarType dtype, bool is_own) {
  return std::to_string(shape.queries) + " queries, " + std::to_string(shape.keys) + " keys, offset " +
         std::to_string(shape.offset) + ", " + c10::toString(dtype) + (is_own ? ", own kernels" : ", ATen's kernels");
}

TEST(AttendPart, EqualsTheFormula) {
  for (const bool is_own : {true, false}) {
    const UsesOwn kernels(is_own);
    for (const auto& shape : kShapes)
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const Inputs inputs = make_inputs(dtype, shape.queries, shape.keys, shape.heads, shape.kv_heads, shape.dim);
        expect_within(run(inputs, shape.offset), formula(inputs, scale_of(inputs.q), shape.offset),
                      part_tolerance(dtype), text_of(shape, dtype, is_own), sums_tolerance(dtype));
      }
  }
}

// Cuts 90 keys into parts at random, attends each where it is seen, merges the parts in a random order, and adds up
// their gradients, as context parallelism does.
Results by_parts(const Inputs& inputs, std::int64_t offset, std::mt19937& random) {
  const auto queries = inputs.q.size(2), keys = inputs.k.size(2);
  std::vector<std::int64_t> cuts = {0, keys};
  for (int i = 0; i < 4; ++i) cuts.push_back(std::uniform_int_distribution<std::int64_t>(0, keys)(random));
  std::ranges::sort(cuts);
  struct Part {
    std::int64_t begin, length, first_query, offset;
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const auto begin = cuts[i], length = cuts[i + 1] - begin, first = std::max<std::int64_t>(0, begin - offset);
    if (length > 0 && first < queries) parts.push_back({begin, length, first, first + offset - begin});
  }
  std::ranges::shuffle(parts, random);
  const auto seen_by = [&](const Part& part, const at::Tensor& x) {
    return x.narrow(2, part.first_query, queries - part.first_query);
  };
  const auto of = [](const Part& part, const at::Tensor& x) { return x.narrow(2, part.begin, part.length); };
  const auto merged = part_of_no_keys(inputs.q);
  for (const auto& part : parts)
    merge_parts({seen_by(part, merged.out), seen_by(part, merged.sums)},
                attend_part(seen_by(part, inputs.q), of(part, inputs.k), of(part, inputs.v), part.offset));
  const auto out = merged.out.to(inputs.q.scalar_type());
  const auto zeros = [](const at::Tensor& like) { return at::zeros(like.sizes()); };
  const Results result{out, merged.sums, zeros(inputs.q), zeros(inputs.k), zeros(inputs.v)};
  for (const auto& part : parts) {
    const auto grads =
        attend_part_backward(seen_by(part, inputs.out_grad), seen_by(part, inputs.q), of(part, inputs.k),
                             of(part, inputs.v), seen_by(part, out), seen_by(part, merged.sums), part.offset);
    seen_by(part, result.q_grad).add_(grads.q);
    of(part, result.k_grad).add_(grads.k);
    of(part, result.v_grad).add_(grads.v);
  }
  return result;
}

TEST(AttendPart, OfRandomPartsMergesToTheWhole) {
  std::mt19937 random(3);
  for (const bool is_own : {true, false}) {
    const UsesOwn kernels(is_own);
    for (int i = 0; i < 8; ++i)
      for (const auto dtype : {at::kFloat, at::kBFloat16}) {
        const Shape shape{40, 90, i % 2 == 0 ? 50 : 21, 4, 2, 16};
        const Inputs inputs = make_inputs(dtype, shape.queries, shape.keys, shape.heads, shape.kv_heads, shape.dim);
        expect_within(by_parts(inputs, shape.offset, random), formula(inputs, scale_of(inputs.q), shape.offset),
                      part_tolerance(dtype), text_of(shape, dtype, is_own), sums_tolerance(dtype));
      }
  }
}

// Scores around 100 and -100, whose exponentials exceed float32. A score of 100 is off by up to 2^-24 of its terms'
// sizes for each of 16 products, about 1e-5, and so are weights.
TEST(AttendPart, MergesPartsWhoseSumsAreFarApart) {
  Inputs inputs = make_inputs(at::kFloat, 6, 20, 1, 1, 16);
  inputs.q = at::ones_like(inputs.q) * 5;
  inputs.k.slice(2, 0, 10).add_(5), inputs.k.slice(2, 10).sub_(5);
  const auto first = [](const at::Tensor& x) { return x.slice(2, 0, 10); };
  const auto last = [](const at::Tensor& x) { return x.slice(2, 10); };
  for (const bool is_reversed : {false, true}) {
    std::array parts = {attend_part(inputs.q, first(inputs.k), first(inputs.v), 10),
                        attend_part(inputs.q, last(inputs.k), last(inputs.v), 10)};
    if (is_reversed) std::swap(parts[0], parts[1]);
    const auto merged = part_of_no_keys(inputs.q);
    for (const auto& part : parts) merge_parts(merged, part);
    const auto expected = formula(inputs, 0.25, 20).values;
    EXPECT_LE((merged.out - expected.out).abs().max().item<double>(), 1e-4);
    EXPECT_LE((merged.sums - expected.sums).abs().max().item<double>(), 1e-4);
  }
}

TEST(AttendPart, OfASquareIsCausalAttentionBitForBit) {
  kernels::install_attention();
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Inputs inputs = make_inputs(dtype, 50, 50, 4, 2, 16);
    const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(true); };
    const at::Tensor q = leaf(inputs.q), k = leaf(inputs.k), v = leaf(inputs.v);
    const at::Tensor out = causal_attention(q, k, v);
    out.backward(inputs.out_grad);
    const Results found = run(inputs, 0);
    EXPECT_TRUE(found.out.equal(out) && found.q_grad.equal(q.grad()) && found.k_grad.equal(k.grad()) &&
                found.v_grad.equal(v.grad()))
        << dtype;
  }
}

// On the meta device sizes, strides and dtypes are those of the CPU; what stands for a GPU merges pieces.
TEST(AttendPart, OfMetaTensorsHasTheCpusShapes) {
  register_meta_kernels();
  for (const bool is_own : {true, false}) {
    const UsesOwn kernels(is_own);
    for (const auto& shape : kShapes) {
      const Inputs there =
          make_inputs(at::kBFloat16, shape.queries, shape.keys, shape.heads, shape.kv_heads, shape.dim);
      const auto meta = [](const at::Tensor& x) { return x.to(at::kMeta); };
      const Inputs inputs{meta(there.q), meta(there.k), meta(there.v), meta(there.out_grad)};
      const Results expected = run(there, shape.offset);
      for (const bool is_gpu : {false, true}) {
        meta_run::stand_for_gpu(is_gpu);
        const Results found = run(inputs, shape.offset);
        meta_run::stand_for_gpu(false);
        EXPECT_TRUE(found.out.is_meta());
        EXPECT_EQ(found.out.sizes(), expected.out.sizes());
        EXPECT_EQ(found.sums.sizes(), expected.sums.sizes());
        EXPECT_EQ(found.q_grad.sizes(), expected.q_grad.sizes());
        EXPECT_EQ(found.k_grad.sizes(), expected.k_grad.sizes());
        EXPECT_EQ(found.v_grad.sizes(), expected.v_grad.sizes());
        if (!is_gpu && is_own && shape.dim % 16 == 0) {
          EXPECT_EQ(found.out.strides(), expected.out.strides());
        }
      }
    }
  }
}

TEST(AttendPart, RefusesAQueryThatSeesNoKey) {
  for (const bool is_own : {true, false}) {
    const UsesOwn kernels(is_own);
    const Inputs inputs = make_inputs(at::kFloat, 4, 4, 1, 1, 16);
    EXPECT_THROW(attend_part(inputs.q, inputs.k, inputs.v, -1), InternalError);
    EXPECT_THROW(attend_part_backward(inputs.q, inputs.q, inputs.k, inputs.v, inputs.q, inputs.q.select(3, 0), -1),
                 InternalError);
  }
}

}  // namespace
}  // namespace titan::nn
