// A named part of the program in a profile: a "user annotation", as torch.profiler.record_function makes it.
#pragma once

#include <ATen/record_function.h>

#include <string>
#include <string_view>

namespace titan {

// From here to the end of its scope, on this thread. While nobody profiles the name is not even made: what is left is
// torch's look at whether somebody does. On CUDA the kernels that are launched meanwhile belong to it too.
class NamedRange {
 public:
  // `make_name` gives what converts to a std::string.
  template <typename MakeName>
  explicit NamedRange(const MakeName& make_name) : function_(at::RecordScope::USER_SCOPE) {
    if (!function_.isActive()) return;
    name_ = make_name();
    function_.before(std::string_view(name_));
  }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  std::string name_;  // which `function_` does not copy
  at::RecordFunction function_;
};

}  // namespace titan
