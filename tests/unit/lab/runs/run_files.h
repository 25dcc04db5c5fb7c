// Folders of runs for tests.
#pragma once

#include <string>

#include "base/error.h"
#include "tests/support/temporary_folder.h"

namespace titan::runs {

using test::TemporaryFolder;

template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace titan::runs
