#include "profile/kineto.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

// Exported by libtorch_cpu; its header needs Kineto's own headers on the include path.
namespace torch::autograd::profiler {
TORCH_API void addMetadataJson(const std::string& key, const std::string& value);
}

namespace titan::profile {
namespace {

namespace profiler = torch::autograd::profiler;
using libkineto::ActivityType;

// Configures Kineto as TorchTitan does: shapes of inputs, no stacks.
profiler::ProfilerConfig kineto_config() {
  return profiler::ProfilerConfig(profiler::ProfilerState::KINETO, /*report_input_shapes=*/true);
}

std::set<profiler::ActivityType> activities(c10::Device device) {
  std::set<profiler::ActivityType> wanted = {profiler::ActivityType::CPU};
  if (device.is_cuda()) wanted.insert(profiler::ActivityType::CUDA);
  return wanted;
}

bool is_on_device(ActivityType type) {
  return type == ActivityType::CONCURRENT_KERNEL || type == ActivityType::GPU_MEMCPY ||
         type == ActivityType::GPU_MEMSET;
}

TraceEvent event_of(const profiler::KinetoEvent& event, TraceEvent::Kind kind) {
  const bool is_kernel = kind == TraceEvent::Kind::kKernel;
  const auto start = static_cast<std::int64_t>(event.startNs());
  return {.kind = kind,
          .name = event.name(),
          .thread = is_kernel ? 0 : event.startThreadId(),
          .start_ns = start,
          .end_ns = start + static_cast<std::int64_t>(event.durationNs()),
          .is_async = !is_kernel && event.isAsync(),
          .correlation = is_kernel ? event.linkedCorrelationId() : event.correlationId()};
}

// Silences Kineto on CPU: it always looks for GPUs, and logs that there are none.
void silence_without_gpu(c10::Device device) {
  constexpr const char* kNothing = "5";
  if (device.is_cpu()) setenv("KINETO_LOG_LEVEL", kNothing, /*overwrite=*/0);
}

}  // namespace

Trace::Trace(std::unique_ptr<profiler::ProfilerResult> result) : result_(std::move(result)) {}
Trace::Trace(Trace&&) noexcept = default;
Trace::~Trace() = default;

std::vector<TraceEvent> Trace::events() const {
  std::vector<TraceEvent> events;
  for (const auto& event : result_->events()) {
    const auto type = static_cast<ActivityType>(event.activityType());
    if (type == ActivityType::CPU_OP) events.push_back(event_of(event, TraceEvent::Kind::kOperator));
    if (type == ActivityType::USER_ANNOTATION) events.push_back(event_of(event, TraceEvent::Kind::kRange));
    if (is_on_device(type)) events.push_back(event_of(event, TraceEvent::Kind::kKernel));
  }
  return events;
}

void Trace::save(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::filesystem::remove(path, error);  // left by an earlier run
  result_->save(path);
  // Kineto does not report a failed write.
  if (std::filesystem::file_size(path, error) == 0 || error)
    throw Error("the profile could not be written to " + path.string() +
                    ": see that the folder can be written and that the disk is not full",
                kExitFailed);
}

void Kineto::prepare() {
  silence_without_gpu(device_);
  profiler::prepareProfiler(kineto_config(), activities(device_));
}

void Kineto::start() {
  profiler::enableProfiler(kineto_config(), activities(device_));
  // The key and its members are torch.profiler's.
  const nlohmann::json ranks = {
      {"backend", device_.is_cuda() ? "nccl" : "gloo"}, {"rank", rank_.rank}, {"world_size", rank_.world_size}};
  profiler::addMetadataJson("distributedInfo", ranks.dump());
}

Trace Kineto::stop() {
  if (device_.is_cuda()) c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  return Trace(profiler::disableProfiler());
}

}  // namespace titan::profile
