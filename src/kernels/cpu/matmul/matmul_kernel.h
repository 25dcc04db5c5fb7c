// 16-bit matmuls on CPU that replace ATen's. With AMX, oneDNN reaches a fifth or a third of the tiles' speed, since it
// waits for memory while it packs its operands. If the processor cannot multiply in the type at all, ATen runs its
// reference loops, or oneDNN is slower than in float32; these kernels then widen operands to float32 while packing
// them.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cpu/matmul/matmul_kernels.h"

namespace titan::kernels {

// True if oneDNN, which runs ATen's bfloat16 and float16 matmuls, has instructions for `dtype`. Otherwise it is slower
// than in float32, or leaves the matmul to ATen's reference loops.
bool has_products(at::ScalarType dtype);

// Returns the kernels for this matmul on this processor; null to use ATen's, if those are as fast or the operands are
// not 16-bit. For very small matmuls ATen runs its reference loops too.
const MatmulKernels* best_matmul(const at::Tensor& left, const at::Tensor& right);

// True if matmul() takes these with `kernels`: left [rows, depth] and right [depth, columns] on CPU, in bfloat16 or
// float16; for tiles, large enough for packing to pay.
bool takes_matmul(const MatmulKernels& kernels, const at::Tensor& left, const at::Tensor& right);

// Writes left times right to `out` [rows, columns] of the same dtype, which has contiguous rows and overlaps neither
// operand. Sums are in float32, rounded once. Runs on ATen's threads; an element's bits depend only on its row, its
// column and the depth. Operands that are not contiguous along any dim are copied first. Not recorded by autograd.
void matmul(const MatmulKernels& kernels, const at::Tensor& left, const at::Tensor& right, const at::Tensor& out);

// Replaces aten::mm and aten::bmm by matmul() with best_matmul() for the tensors that it takes; ATen's own kernels run
// for others. Holds for the process, permanently; calling it again changes nothing.
void install_matmul();

}  // namespace titan::kernels
