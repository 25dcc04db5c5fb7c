// Shortens the errors of torch. Their text has a stack of addresses, which says nothing to a user.
#pragma once

#include <c10/util/Exception.h>

#include <functional>
#include <string>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "base/process/exit_code.h"

namespace titan {

// Returns what `body` returns. If it throws an error of torch, throws Error with the words that `explain` makes of the
// error's first lines, without its stack; TORCH_SHOW_CPP_STACKTRACES=1 leaves the error as it is.
template <typename Body, typename Explain = std::identity>
auto with_short_torch_errors(Body&& body, const Explain& explain = {}) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::Error& error) {
    if (get_env("TORCH_SHOW_CPP_STACKTRACES") == "1") throw;
    throw Error(explain(std::string(error.what_without_backtrace())), kExitFailed);
  }
}

}  // namespace titan
