#include "trace/planned_collectives.h"

#include <mutex>
#include <utility>

#include "trace/operation.h"

namespace titan {
namespace {

struct Collected {
  std::mutex mutex;
  bool is_on = false;
  std::vector<PlannedCollective> all;
};

Collected& collected() {
  static Collected one;
  return one;
}

}  // namespace

PlannedCollectives::PlannedCollectives() {
  const std::lock_guard lock(collected().mutex);
  collected().is_on = true;
  collected().all.clear();
}

PlannedCollectives::~PlannedCollectives() {
  const std::lock_guard lock(collected().mutex);
  collected().is_on = false;
  collected().all.clear();
}

std::vector<PlannedCollective> PlannedCollectives::take() {
  const std::lock_guard lock(collected().mutex);
  return std::exchange(collected().all, {});
}

void plan_collective(const char* kind, const std::string& group, std::int64_t bytes) {
  const std::lock_guard lock(collected().mutex);
  if (collected().is_on) collected().all.push_back({kind, group, std::string(current_label()), bytes});
}

}  // namespace titan
