// How the program ends: every error as one line and one exit code.
#pragma once

#include <functional>

namespace titan {

// What `body` returns; where it throws, that error's exit code, after its message was printed.
int exit_code_of(const std::function<int()>& body);

}  // namespace titan
