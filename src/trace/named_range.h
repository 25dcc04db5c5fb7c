// A named range of a profile: a "user annotation", as torch.profiler.record_function creates it.
#pragma once

#include <ATen/record_function.h>

#include <string>
#include <string_view>

namespace titan {

// Names the scope from construction to destruction, on this thread. Without a profiler the name is not made; only
// torch's check for an active profiler remains. On CUDA, kernels launched in the scope belong to the range too.
class NamedRange {
 public:
  // `make_name` returns something convertible to std::string.
  template <typename MakeName>
  explicit NamedRange(const MakeName& make_name) : function_(at::RecordScope::USER_SCOPE) {
    if (!function_.isActive()) return;
    name_ = make_name();
    function_.before(std::string_view(name_));
  }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  std::string name_;  // not copied by `function_`
  at::RecordFunction function_;
};

}  // namespace titan
