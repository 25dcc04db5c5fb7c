#include "tests/support/simulated_device/simulated_device.h"

#include <ATen/ATen.h>

#include <cstdlib>
#include <string>

#include "distributed/accelerator/cuda_driver.h"
#include "distributed/device.h"
#include "nn/random/counter_rng.h"
#include "tests/support/simulated_device/parts.h"

namespace titan::sim {

namespace {

c10::DeviceIndex g_index = 0;

int from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

void fill_uniform(at::Tensor out, std::uint64_t seed, std::uint64_t stream, std::int64_t first_index) {
  nn::fill_counter_uniform(on_host(out), seed, stream, first_index);
  State::get().queue(current_stream(), "fill_uniform", {{bytes_of(out), true, "out"}});
}

}  // namespace

c10::Device device() { return {c10::DeviceType::PrivateUse1, g_index}; }

void install() {
  static const bool is_done = [] {
    c10::register_privateuse1_backend("simulated");
    install_hooks();
    install_allocator();
    install_host_watch();
    install_fused_ops();
    install_attention();
    dist::register_accelerator({
        .type = c10::DeviceType::PrivateUse1,
        .make_backend = make_backend,
        .device_count = [] { return from_environment("SIMULATED_DEVICES", 128); },  // more than the ranks of any test
        .set_device = [](int index) { g_index = static_cast<c10::DeviceIndex>(index); },
        .device_name = [](int) { return std::string("simulated device"); },
        .device_capacity_bytes = [](int) { return std::int64_t{8} << 30; },
        .device_free_bytes = [](int) { return std::int64_t{from_environment("SIMULATED_FREE_MIB", 8 << 10)} << 20; },
        .device_uuid = [](int index) { return std::to_string(from_environment("SIMULATED_UUID", index)); },
        .why_no_kernels =
            [](int) {
              return dist::why_no_kernels("simulated device", from_environment("SIMULATED_CAPABILITY", 90), 75);
            },
        .peak_reserved_bytes = [](int) { return findings().peak_reserved_bytes; },
        .peak_active_bytes = [](int) { return findings().peak_live_bytes; },
        .reset_peak_memory = [](int) {},
        .num_alloc_retries = [](int) { return std::int64_t{0}; },
        .num_ooms = [](int) { return std::int64_t{0}; },
        .fill_uniform = fill_uniform,
        .record_memory_history = {},
        .memory_snapshot = {},
    });
    return true;
  }();
  (void)is_done;
}

}  // namespace titan::sim
