// Tests attention within documents against the formula: softmax of masked scores.
#include "nn/documents.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "nn/ops/kept_ops.h"

namespace titan::nn {
namespace {

std::vector<std::int64_t> lengths(const at::Tensor& tokens) {
  const auto found = document_lengths(tokens, 9);
  return {found.const_data_ptr<std::int64_t>(), found.const_data_ptr<std::int64_t>() + found.numel()};
}

TEST(DocumentLengths, EndWithTheTokenAndWithTheRow) {
  using Lengths = std::vector<std::int64_t>;
  EXPECT_EQ(lengths(at::tensor({1, 2, 9, 3, 9, 4}, at::kLong).view({1, 6})), (Lengths{3, 2, 1}));
  EXPECT_EQ(lengths(at::tensor({1, 2, 3, 9, 9, 1}, at::kLong).view({2, 3})), (Lengths{3, 1, 1, 1}));
  EXPECT_EQ(lengths(at::tensor({1, 2, 9, 3}, at::kLong).view({2, 2})), (Lengths{2, 1, 1}));
  EXPECT_EQ(lengths(at::zeros({2, 4}, at::kLong)), (Lengths{4, 4}));  // none ends within its row
  EXPECT_EQ(lengths(at::full({1, 2}, 9, at::kLong)), (Lengths{1, 1}));
}

TEST(DocumentLengths, EndWhereTheDocumentChanges) {
  using Lengths = std::vector<std::int64_t>;
  const auto found = [](std::optional<std::int64_t> end, const std::vector<std::int64_t>& documents) {
    const auto tokens = at::tensor({1, 9, 2, 3, 9, 4}, at::kLong).view({2, 3});
    const auto all = document_lengths(tokens, end, at::tensor(documents).view({2, 3}));
    return Lengths(all.const_data_ptr<std::int64_t>(), all.const_data_ptr<std::int64_t>() + all.numel());
  };
  EXPECT_EQ(found(std::nullopt, {0, 0, 1, 0, 1, 2}), (Lengths{2, 1, 1, 1, 1}));
  EXPECT_EQ(found(std::nullopt, {5, 5, 5, 5, 5, 5}), (Lengths{3, 3}));
  EXPECT_EQ(found(9, {0, 0, 0, 0, 0, 1}), (Lengths{3, 2, 1}));  // the token does not end a known document
  EXPECT_EQ(found(9, {-1, -1, -1, 0, 0, 0}), (Lengths{2, 1, 3}));
}

TEST(KnownDocuments, NumberTheDocumentsOfTheirRows) {
  const auto tokens = at::tensor({1, 9, 2, 3, 9, 9, 4, 5}, at::kLong).view({2, 4});
  const auto expect = [&](std::optional<std::int64_t> end, const at::Tensor& documents) {
    const auto known = known_documents(tokens, end, documents);
    EXPECT_EQ(known.sizes(), tokens.sizes());
    EXPECT_TRUE(known.ge(0).all().item<bool>());
    // They say the same of each row as the tokens do, now without them.
    EXPECT_TRUE(document_lengths(at::zeros_like(tokens), end, known).equal(document_lengths(tokens, end, documents)));
  };
  expect(9, {});
  expect(9, at::tensor({-1, -1, -1, -1, 0, 0, 0, 1}, at::kLong).view({2, 4}));
  expect(std::nullopt, at::tensor({0, 1, 1, 1, 7, 7, 7, 7}, at::kLong).view({2, 4}));
}

struct Heads {
  at::Tensor q, k, v;
};

// 4 query heads over 2 key and value heads.
Heads heads(std::int64_t rows, std::int64_t length) {
  auto generator = at::detail::createCPUGenerator(3);
  const auto draw = [&](std::int64_t count) {
    return at::randn({rows, count, length, 8}, generator, at::TensorOptions().dtype(at::kDouble))
        .set_requires_grad(true);
  };
  return {draw(4), draw(2), draw(2)};
}

// In words: token j of the same row counts for token i when j <= i and no document ends in [j, i).
at::Tensor by_formula(const Heads& h, const at::Tensor& tokens) {
  const auto rows = tokens.size(0), length = tokens.size(1);
  auto allowed = at::zeros({rows, 1, length, length}, at::kBool);
  const auto ends = tokens.accessor<std::int64_t, 2>();
  for (std::int64_t b = 0; b < rows; ++b) {
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::int64_t j = i; j >= 0 && (j == i || ends[b][j] != 9); --j) allowed[b][0][i][j] = true;
    }
  }
  const auto k = h.k.repeat_interleave(2, 1), v = h.v.repeat_interleave(2, 1);
  const auto scores = at::matmul(h.q, k.transpose(-1, -2)) / std::sqrt(8.0);
  return at::matmul(scores.masked_fill(allowed.logical_not(), -std::numeric_limits<double>::infinity()).softmax(-1), v);
}

std::vector<at::Tensor> with_gradients(const Heads& h, const at::Tensor& out) {
  const auto weights = at::arange(out.numel(), out.options()).view(out.sizes()).sin();
  const auto grads = torch::autograd::grad({(out * weights).sum()}, {h.q, h.k, h.v});
  return {out, grads[0], grads[1], grads[2]};
}

void expect_close(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    // Sums of up to 16 terms of size 1 in double.
    EXPECT_LT((found[i] - expected[i]).abs().max().item<double>(), 1e-13) << i;
  }
}

TEST(DocumentAttention, IsTheFormula) {
  const auto tokens = at::tensor({1, 9, 1, 1, 1, 9, 9, 1,   //
                                  9, 1, 1, 1, 1, 1, 1, 9,   //
                                  1, 1, 1, 1, 1, 1, 1, 1},  //
                                 at::kLong)
                          .view({3, 8});
  const auto h = heads(3, 8);
  const auto out = document_attention(h.q, h.k, h.v, document_lengths(tokens, 9));
  expect_close(with_gradients(h, out), with_gradients(h, by_formula(h, tokens)));
}

TEST(DocumentAttention, OfWholeRowsIsCausalAttention) {
  const auto h = heads(2, 6);
  const auto out = document_attention(h.q, h.k, h.v, document_lengths(at::zeros({2, 6}, at::kLong), 9));
  EXPECT_TRUE(out.equal(causal_attention(h.q, h.k, h.v)));
}

}  // namespace
}  // namespace titan::nn
