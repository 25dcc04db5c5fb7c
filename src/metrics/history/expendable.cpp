#include "metrics/history/expendable.h"

#include <spdlog/spdlog.h>

namespace titan::metrics {

void Expendable::give_up(const std::exception& error) {
  has_failed_ = true;
  spdlog::warn("{}. Training goes on without {} until the next start", error.what(), what_);
}

}  // namespace titan::metrics
