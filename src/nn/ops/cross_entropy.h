// The loss of a language model. A row is a token's place in the batch, V the vocabulary, D the model's width.
//
// On CPU, and on the meta device as there, logits in float32 or bfloat16 are read as they are
// (kernels/cpu/rows/cross_entropy_kernel.h), and the losses can be differentiated once (InternalError else). On a GPU, and on the meta
// device where it stands for one, the operators are ATen's, on a float32 copy of the logits, of some rows at a time where
// this program's own way is asked for (kernels/choice.h); without that they are ATen's everywhere, on all rows.
#pragma once

#include <ATen/core/Tensor.h>

namespace titan::nn {

constexpr std::int64_t kIgnoreIndex = -100;  // a label that does not count

// Sum over tokens of the cross entropy of logits [..., V] against labels int64 [...], in float32, 0-d. Divide by the
// global number of labels that count. The gradient takes the logits' memory when backward is the last to hold them:
// drop them before. Throws c10::IndexError for a label outside the vocabulary.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels);

// The same of the logits x [..., D] times weight [V, D] transposed. They are made and used rows_of_logits() at a time.
// Where these are not all, gradients are computed along with the loss, and the logits of the rows before are gone: the
// gradient of bfloat16 weights is summed in float32, and rounded once more for each part.
at::Tensor linear_cross_entropy_sum(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels);

// How the losses of rows of logits and their gradient are computed: another way than this program's kernels for rows
// that are whole, where the vocabulary is split over ranks.
class RowLosses {
 public:
  struct Result {
    at::Tensor loss;   // float32, 0-d: the sum over the labels that count
    at::Tensor stats;  // what backward() wants to know of the rows
  };
  virtual ~RowLosses() = default;
  // logits [..., V], labels int64 [...], both contiguous.
  virtual Result forward(const at::Tensor& logits, const at::Tensor& labels) const = 0;
  // Writes the gradient of the logits for `loss_grad`, float32 0-d, to `grad`: like the logits, which it may be itself.
  virtual void backward(const at::Tensor& loss_grad, const at::Tensor& logits, const at::Tensor& labels,
                        const at::Tensor& stats, const at::Tensor& grad) const = 0;
};

// linear_cross_entropy_sum() with the losses computed by `losses`, which must outlive the graph.
at::Tensor linear_cross_entropy_sum(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                    const RowLosses& losses);

struct LossShape {
  std::int64_t rows, dim, vocab;
  at::ScalarType dtype;
  bool on_gpu = false;
};

// How many rows of logits linear_cross_entropy_sum() has in memory at once in this program's own way: those of 64 MiB on
// CPU, on a GPU those of 1 GiB with their copies, but some 256 at least, and all where parts would take no less memory.
std::int64_t rows_of_logits(const LossShape& shape);
// What these take, with their float32 copy where the operators are ATen's.
std::int64_t bytes_of_logits(const LossShape& shape);

namespace detail {
// With so many rows of logits at a time; float32 or bfloat16, contiguous. The first on CPU or the meta device.
at::Tensor linear_cross_entropy_sum_in_parts(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                             std::int64_t rows);
at::Tensor linear_cross_entropy_sum_in_parts(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                             std::int64_t rows, const RowLosses& losses);
// Of rows that are whole, by ATen's operators: those of a GPU.
const RowLosses& aten_rows();
}  // namespace detail

// The same of ATen's operators, everywhere: the plain reference.
namespace composed {
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels);
}  // namespace composed

}  // namespace titan::nn
