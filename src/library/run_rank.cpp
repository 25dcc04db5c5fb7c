#include "library/run_rank.h"

#include <c10/util/Logging.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process/exit_code.h"
#include "base/process/program_name.h"
#include "base/process/speaks.h"
#include "base/stack/crash.h"
#include "distributed/device.h"
#include "kernels/memory/host_arena.h"
#include "library/code_choice.h"
#include "library/run_or_report.h"
#include "train/setup.h"

namespace titan {
namespace {

// Loads the CUDA module if the ranks shall use GPUs.
c10::DeviceType choose_device_type(const std::optional<c10::DeviceType>& wanted) {
  if (wanted == c10::DeviceType::CPU) return *wanted;
  if (wanted && wanted != c10::DeviceType::CUDA)
    throw ConfigError("error: RankOptions::device_type is " + c10::DeviceTypeName(*wanted, /*lower_case=*/true) +
                      "; expected cpu or cuda");
  const std::string missing = dist::load_accelerator_module();
  if (missing.empty()) return dist::accelerator()->type;
  if (wanted) throw ConfigError("error: RankOptions::device_type is cuda, but " + missing);
  if (dist::has_cuda_device())
    throw ConfigError("error: there is a GPU, but " + missing + "; set RankOptions::device_type to use the CPU");
  return c10::DeviceType::CPU;
}

int run(const std::function<void(dist::World& world)>& body, const RankOptions& options) {
  const LaunchEnv launch = detect_launch();
  install_crash_handlers(static_cast<int>(launch.rank));
  train::set_num_threads(launch.local_world_size);
  choose_cpu_code({.kernels = options.own_kernels ? "own" : "aten"});
  auto world = report_once(speaks_for_job(launch), [&] {
    return std::make_unique<dist::World>(launch, choose_device_type(options.device_type), options.timeout);
  });
  return run_or_report(std::move(world), [&](dist::World& ranks) {
    train::share_processors(ranks);
    body(ranks);
    ranks.shutdown();
    return kExitDone;
  });
}

}  // namespace

int run_rank(const std::function<void(dist::World& world)>& body, const RankOptions& options) {
  static std::atomic<bool> has_run = false;
  TITAN_CHECK(!has_run.exchange(true), "run_rank was called a second time; the ranks of a job meet once in a process");
  // torch warns about kernels that are replaced on purpose, and c10d, with a stack, about every connection that ends.
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*overwrite=*/0);
  c10::initLogging();
  kernels::install_host_arena();
  log_to_stderr(program_name());
  return exit_code_of([&] { return run(body, options); }, /*may_be_rank=*/true);
}

}  // namespace titan
