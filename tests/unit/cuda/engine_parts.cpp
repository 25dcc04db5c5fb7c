// A test replaces the engine, but from static libraries a linker takes only what is referenced. This file references
// what the module needs.
#include "distributed/world.h"
#include "kernels/device/device_operators.h"

namespace titan {

[[gnu::used]] static const auto stop_this_rank = &dist::stop_this_rank;
[[gnu::used]] static const auto register_operators = &device::register_operators;

}  // namespace titan
