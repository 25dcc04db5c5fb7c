#include "library/run_or_report.h"

#include "base/error.h"
#include "base/limits/system_limits.h"
#include "base/process/exit_code.h"
#include "base/process/rank_process.h"
#include "distributed/accelerator/device_error.h"
#include "library/short_torch_errors.h"

namespace titan {
namespace {

// Returns the text of an error with, if this rank's device reports it, the device and what to do about it.
std::string text_with_device(const dist::World& world, const std::string& text) {
  if (!dist::is_device_error(text)) return text;
  return dist::reason_in(text) + " (device " + world.device().str() + " of " + host_name() +
         "). A device fails every call after such an error; this rank has ended. Start again from the last checkpoint; "
         "if the same device fails again, see dmesg for its Xid errors and leave it out (CUDA_VISIBLE_DEVICES, or "
         "another machine)";
}

}  // namespace

int run_or_report(std::unique_ptr<dist::World> world, const std::function<int(dist::World&)>& body) {
  try {
    return with_short_torch_errors([&] { return body(*world); },
                                   [&](const std::string& text) { return text_with_device(*world, text); });
  } catch (const PeerError& error) {
    world->stop(error.what());
  } catch (const std::exception& error) {
    if (!world.release()->report_failure(message_of_error(error))) throw;
    const auto* own = dynamic_cast<const Error*>(&error);
    return own ? own->exit_code() : kExitFailed;
  } catch (...) {
    if (!world.release()->report_failure(kNotAnException)) throw;
    return kExitFailed;
  }
}

}  // namespace titan
