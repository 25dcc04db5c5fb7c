// The cross entropy of rows of logits, on one thread, in float32 inside. cross_entropy_rows.cpp is compiled once for
// each set of instructions, into a namespace of its own (see attention/heads.h, also for why there is no torch here).
#pragma once

#include <cstdint>

#include "kernels/portable/half_bits.h"

namespace titan::kernels {

// Statistics of a row's softmax, which is e^(logit - largest) / sum. Kept separately: the logarithm of the sum of
// exponentials, which combines them, loses the sum to rounding if logits are large.
struct SoftmaxStats {
  float largest;  // logit
  float sum;      // sum of e^(logit - largest)
};

template <typename T>
struct LossRows {
  const T* logits;  // [rows, vocab]
  // Below 0: the row does not count. vocab or more: the label is in another part of the vocabulary, and the loss and
  // the gradient omit its term.
  const std::int64_t* labels;
  std::int64_t rows, vocab;
};

struct CrossEntropyKernels {
  const char* name;

  // Write each row's loss (0 if it does not count) and its stats (only if it counts).
  void (*forward_float)(const LossRows<float>&, SoftmaxStats* stats, double* losses);
  void (*forward_bfloat16)(const LossRows<BFloat16Bits>&, SoftmaxStats* stats, double* losses);
  // grads[r][j] = loss_grad * d loss of row r / d logits[r][j], 0 if the row does not count. `grads` may be the logits'
  // memory.
  void (*backward_float)(const LossRows<float>&, const SoftmaxStats* stats, float loss_grad, float* grads);
  void (*backward_bfloat16)(const LossRows<BFloat16Bits>&, const SoftmaxStats* stats, float loss_grad,
                            BFloat16Bits* grads);
};

// Builds per instruction set. Call only those whose instructions this machine has.
namespace plain {
extern const CrossEntropyKernels kCrossEntropy;
}
namespace avx2 {
extern const CrossEntropyKernels kCrossEntropy;
}
namespace avx512 {
extern const CrossEntropyKernels kCrossEntropy;
}

}  // namespace titan::kernels
