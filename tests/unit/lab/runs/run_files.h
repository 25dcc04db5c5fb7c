// Folders of runs for tests.
#pragma once

#include <string>

#include "base/error.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace titan::runs {

using test::TemporaryFolder;

template <class Action>
std::string error_of(Action action) {
  return test::message_of<Error>(action);
}

}  // namespace titan::runs
