// Compiled with TITAN_ISA (the namespace) and TITAN_VECTOR_BYTES, see CMakeLists.txt.
#include "kernels/cpu/matmul/vector_panels.h"

namespace titan::kernels::TITAN_ISA {
namespace {

template <typename T>
void multiply(const MatmulShape& shape, const Matrix<T>& left, const Matrix<T>& right, T* out, Index out_stride,
              void* workspace) {
  Multiplication<VectorPanels<T>>(shape, left, right, out, out_stride, workspace).run();
}

}  // namespace

extern const MatmulKernels kMatmul = {TITAN_STRING(TITAN_ISA), Multiplication<VectorPanels<BFloat16Bits>>::workspace,
                                      multiply<BFloat16Bits>, multiply<Float16Bits>};

}  // namespace titan::kernels::TITAN_ISA
