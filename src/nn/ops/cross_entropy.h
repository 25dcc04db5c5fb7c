// The loss of a language model. A row is a token's place in the batch, V the vocabulary, D the model's width.
//
// On CPU (and a meta device that stands for one), float32 or bfloat16 logits are read without a copy
// (kernels/cpu/rows/cross_entropy_kernel.h), and the losses can be differentiated once (InternalError otherwise). On a
// GPU (and a meta device that stands for one), ATen's operators run on a float32 copy of the logits, of some rows at a
// time if this program's own kernels are in use (kernels/operators.h). If they are not in use, ATen's operators run
// everywhere, on all rows.
#pragma once

#include <ATen/core/Tensor.h>

namespace titan::nn {

constexpr std::int64_t kIgnoreIndex = -100;  // a label that does not count

// Returns the sum over tokens of the cross entropy of logits [..., V] against labels int64 [...], in float32, 0-d, each
// times its weight in `row_weights` float32 [...] if that is defined. Divide by the global number of labels that count,
// or the sum of their weights. The gradient reuses the logits' memory if backward is the last to
// hold them: release them before. Throws c10::IndexError for a label outside the vocabulary.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& row_weights = {});

// The same for the logits x [..., D] times weight [V, D] transposed, which are used rows_of_logits() at a time. If
// these are not all rows, gradients are computed along with the loss, and take the place of the logits, which are
// freed: on CPU after each part, on a GPU after as many rows as take up to the memory of the weight's gradient in
// float32. If that happens more than once, the gradient of bfloat16 weights is summed in float32, and rounded once more
// each time.
at::Tensor linear_cross_entropy_sum(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                    const at::Tensor& row_weights = {});

// Returns the weights for losses that are divided by `labels_of_sample` int64 [...], float32 on `device`; undefined if
// that is undefined.
at::Tensor row_weights_of(const at::Tensor& labels_of_sample, at::Device device);

// Interface that computes the losses of rows of logits and their gradient. A vocabulary that is split over ranks needs
// an implementation of its own.
class RowLosses {
 public:
  struct Result {
    at::Tensor loss;       // float32, 0-d: the sum over the labels that count
    at::Tensor stats;      // data of the rows for backward()
    at::Tensor each = {};  // float64 [rows]: the loss of each, 0 if its label does not count; for `wants_each`
  };
  virtual ~RowLosses() = default;
  // logits [..., V], labels int64 [...], both contiguous.
  virtual Result forward(const at::Tensor& logits, const at::Tensor& labels, bool wants_each) const = 0;
  // Writes the gradient of the logits for `loss_grad` (float32, 0-d) to `grad`, which is like the logits and may be the
  // logits.
  virtual void backward(const at::Tensor& loss_grad, const at::Tensor& logits, const at::Tensor& labels,
                        const at::Tensor& stats, const at::Tensor& grad) const = 0;
};

// linear_cross_entropy_sum() with the losses computed by `losses`, which must outlive the graph.
at::Tensor linear_cross_entropy_sum(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                    const RowLosses& losses, const at::Tensor& row_weights = {});

struct LossShape {
  std::int64_t rows, dim, vocab;
  at::ScalarType dtype;
  bool on_gpu = false;
};

// Returns the number of rows of logits that linear_cross_entropy_sum() uses at once with this program's own kernels: 64
// MiB of them on CPU, 1 GiB with their copies on a GPU, but at least about 256 rows, and all if parts would take no
// less memory.
std::int64_t rows_of_logits(const LossShape& shape);

namespace detail {
// Compute `rows` rows of logits at a time; float32 or bfloat16, contiguous. The first is for CPU and the meta device.
at::Tensor linear_cross_entropy_sum_in_parts(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                             std::int64_t rows);
at::Tensor linear_cross_entropy_sum_in_parts(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                             std::int64_t rows, const RowLosses& losses,
                                             const at::Tensor& row_weights = {});
// Returns the losses of rows with the full vocabulary by ATen's operators: those of a GPU.
const RowLosses& aten_rows();
}  // namespace detail

// The same by ATen's operators on every device: the plain reference.
namespace composed {
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& row_weights = {});
}  // namespace composed

}  // namespace titan::nn
