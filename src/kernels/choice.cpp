#include "kernels/choice.h"

#include <atomic>

namespace titan::kernels {
namespace {

std::atomic<bool> own_kernels = true, own_kernels_on_device = false;

}  // namespace

void use_own(bool own) { own_kernels = own; }
bool uses_own() { return own_kernels; }

void use_own_on_device(bool own) { own_kernels_on_device = own; }
bool uses_own_on_device() { return own_kernels_on_device; }

}  // namespace titan::kernels
