#include "trace/operation.h"

#include <string>
#include <utility>

namespace titan {
namespace {

thread_local MemoryUse t_use = MemoryUse::kOther;
thread_local std::string_view t_label;

}  // namespace

MemoryUse current_memory_use() { return t_use; }
std::string_view current_label() { return t_label; }

Operation::Operation(const Kind& kind, std::string_view label)
    : outer_use_(std::exchange(t_use, kind.use)), outer_label_(std::exchange(t_label, label)) {
  if (kind.range) range_.emplace([&] { return std::string(kind.range) + " (" + std::string(label) + ")"; });
}

Operation::~Operation() {
  t_use = outer_use_;
  t_label = outer_label_;
}

}  // namespace titan
