// A test takes the engine's place, but of static libraries a linker takes only what something asks for. This asks for what
// the module needs of them.
#include <typeinfo>

#include "distributed/world.h"
#include "kernels/device/device_fused_ops.h"

namespace titan {

[[gnu::used]] static const auto stop_this_rank = &dist::stop_this_rank;
[[gnu::used]] static const auto* const fused_ops = &typeid(device::DeviceFusedOps);

}  // namespace titan
