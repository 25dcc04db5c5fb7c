#include "kernels/choice.h"

#include <atomic>

namespace titan::kernels {
namespace {

std::atomic<bool> own_kernels = true;

}  // namespace

void use_own(bool own) { own_kernels = own; }

bool uses_own() { return own_kernels; }

}  // namespace titan::kernels
