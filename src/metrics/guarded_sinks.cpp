#include "metrics/guarded_sinks.h"

#include <spdlog/spdlog.h>

namespace titan::metrics {

void Record::fail(const std::exception& error) {
  failure_ = error.what();
  spdlog::warn("{}: the run cannot go on without its rows, and ends after the next step", failure_);
}

}  // namespace titan::metrics
