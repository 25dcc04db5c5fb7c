#include "library/run_or_report.h"

#include "base/error.h"

namespace titan {

int run_or_report(std::unique_ptr<dist::World> world, const std::function<int(dist::World&)>& body) {
  try {
    return body(*world);
  } catch (const PeerError& error) {
    world->stop(error.what());
  } catch (const std::exception& error) {
    if (!world.release()->report_failure(error.what())) throw;
    const auto* own = dynamic_cast<const Error*>(&error);
    return own ? own->exit_code() : kExitFailed;
  }
}

}  // namespace titan
