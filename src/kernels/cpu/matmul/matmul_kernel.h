// Products of matrices in 16 bits on CPU, in place of ATen's. With AMX oneDNN comes to a fifth or a third of what the
// tiles do, since it waits for memory while it packs its operands. Where the processor does not multiply in the type at
// all, ATen goes through its reference loops, or oneDNN is slower than in float32: there operands are widened to float32
// while they are packed.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cpu/matmul/matmul_kernels.h"

namespace titan::kernels {

// True if oneDNN, to which ATen hands products of bfloat16 and float16, multiplies in `dtype` with instructions for it.
// Elsewhere it is slower than in float32, or leaves them to ATen's reference loops.
bool has_products(at::ScalarType dtype);

// The kernels for this product on this processor; null if ATen's are to be used, since they are as fast or do not have
// 16 bits. ATen goes through its reference loops also where a product is very small.
const MatmulKernels* best_matmul(const at::Tensor& left, const at::Tensor& right);

// True if `kernels` multiply these in matmul(): left [rows, depth] and right [depth, columns] on CPU, in bfloat16 or
// float16; for tiles large enough for packing to pay.
bool takes_matmul(const MatmulKernels& kernels, const at::Tensor& left, const at::Tensor& right);

// left times right, written to `out` [rows, columns] of the same dtype, whose rows are of neighbours and overlap
// neither operand. Sums are float32's, rounded once. On ATen's threads; an element's bits depend on its row, its column
// and the depth alone. Operands without neighbours along a dim are copied first. Not recorded by autograd.
void matmul(const MatmulKernels& kernels, const at::Tensor& left, const at::Tensor& right, const at::Tensor& out);

// From now on aten::mm and aten::bmm are matmul() with best_matmul() where it takes the tensors, and ATen's own
// elsewhere. For the process, for good; calling it again changes nothing.
void install_matmul();

}  // namespace titan::kernels
