// Products of bfloat16 matrices on CPU, in place of oneDNN's, on processors that have tiles (AMX): there oneDNN comes to
// a fifth or a third of what the tiles do, since it waits for memory while it packs its operands.
#pragma once

#include <ATen/core/Tensor.h>

namespace titan::kernels {

// Whether matmul() takes these: this processor has tiles; left [rows, depth] and right [depth, columns] are bfloat16 on
// CPU, elements neighbours along one of their dims, and large enough for packing to pay.
bool takes_matmul(const at::Tensor& left, const at::Tensor& right);

// left times right, written to `out` [rows, columns], bfloat16, whose rows are of neighbours and overlap neither operand.
// Sums are float32's, rounded once. On ATen's threads; an element's bits depend on its row, its column and the depth
// alone. Not recorded by autograd.
void matmul(const at::Tensor& left, const at::Tensor& right, const at::Tensor& out);

// From now on aten::mm is matmul() where it takes the tensors, and ATen's own elsewhere. For the process, for good;
// calling it again changes nothing.
void install_matmul();

}  // namespace titan::kernels
