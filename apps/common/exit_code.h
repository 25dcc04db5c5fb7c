// How the program ends: every error as one line and one exit code.
#pragma once

#include <chrono>
#include <functional>

namespace titan {

// How long a rank with nothing to say waits for its launcher to end it.
constexpr auto kSpeakerPatience = std::chrono::seconds(10);

// Returns what `body` returns; where it throws, that error's exit code, after its message was printed. A rank that
// throws SaidByAnother waits: a launcher ends all ranks as soon as the first has ended, also the one that is about to
// print. Where it is not ended within `patience`, it prints the message too. `may_be_rank`: the process trains, so that
// a launcher may have started it as one of several, whose failures name their rank; a command is nobody's rank,
// whatever the environment of a job around it says.
int exit_code_of(const std::function<int()>& body, bool may_be_rank,
                 std::chrono::milliseconds patience = kSpeakerPatience);

}  // namespace titan
