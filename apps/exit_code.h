// How the program ends: every error as one line and one exit code.
#pragma once

#include <functional>

namespace titan {

// What `body` returns; where it throws, that error's exit code, after its message was printed (but for SaidByAnother).
// `may_be_rank`: the process trains, so that a launcher may have started it as one of several, whose failures name
// their rank; a command is nobody's rank, whatever the environment of a job around it says.
int exit_code_of(const std::function<int()>& body, bool may_be_rank);

}  // namespace titan
