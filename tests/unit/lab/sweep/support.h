// Sweeps and folders for tests.
#pragma once

#include <limits>
#include <string>

#include "base/error.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace titan::sweep {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using test::TemporaryFolder;

template <class Action>
std::string error_of(Action action) {
  return test::message_of<Error>(action);
}

}  // namespace titan::sweep
