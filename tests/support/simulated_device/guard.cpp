// Implements streams and events for libc10's generic guards, and torch's hooks of an accelerator.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <string>

#include "tests/support/simulated_device/parts.h"
#include "tests/support/simulated_device/state.h"

namespace titan::sim {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

c10::Stream stream_of(StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device(), id); }
StreamId id_of(const c10::Stream& stream) { return static_cast<StreamId>(stream.id()); }

struct Event {
  Clock clock;
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device().index() + 1); }

  c10::Stream getStream(c10::Device) const override { return stream_of(current_stream()); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool high_priority) const override {
    static std::atomic<int> count = 0;
    return stream_of(State::get().new_stream((high_priority ? "side, fast " : "side ") + std::to_string(++count)));
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return getStreamFromGlobalPool(device, priority < 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(exchange_current_stream(id_of(stream)));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (!*event) *event = new Event();
    static_cast<Event*>(*event)->clock = State::get().record(id_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) State::get().stream_waits(id_of(stream), static_cast<Event*>(event)->clock);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  bool queryEvent(void*) const override { return false; }  // no code may rely on the device being fast
  void synchronizeEvent(void* event) const override {
    if (event) State::get().synchronize(static_cast<Event*>(event)->clock, "an event");
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    auto& state = State::get();
    state.synchronize(state.record(id_of(stream)), "a stream");
  }
  void synchronizeDevice(c10::DeviceIndex) const override {
    auto& state = State::get();
    state.synchronize(state.record_all(), "the device");
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const memory = State::get().allocate_pinned(bytes);
    return {memory, memory, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void release(void* memory) { State::get().free_pinned(memory); }
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device().index() + 1); }
  c10::DeviceIndex getCurrentDevice() const override { return device().index(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const auto* const generator = new at::Generator(at::detail::createCPUGenerator());
    return *generator;
  }
  bool isPinnedPtr(const void* data) const override { return State::get().is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto* const allocator = new PinnedAllocator();
    return allocator;
  }
};

}  // namespace

void install_hooks() {
  static Hooks* const hooks = new Hooks();
  at::RegisterPrivateUse1HooksInterface(hooks);
}

}  // namespace titan::sim
