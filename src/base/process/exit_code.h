// Turns every error into one line on standard error and one exit code.
#pragma once

#include <chrono>
#include <functional>

namespace titan {

// Time that a rank with nothing to report waits for its launcher to end it.
constexpr auto kSpeakerPatience = std::chrono::seconds(10);

// Message for what was thrown if it is not a std::exception.
constexpr const char* kNotAnException = "it threw something that is not a std::exception";

// Returns what `body` returns. If it throws, prints the error's message and returns its exit code. A rank that throws
// AlreadyReported first waits up to `patience`: a launcher ends all ranks as soon as the first one exits, including the
// one about to print the message. If nothing ends it, it prints the message too. `may_be_rank`: true if the process
// trains, so that a launcher may have started it as one of several ranks and its failures name the rank. Commands pass
// false: they are never ranks, whatever the environment of a surrounding job says.
int exit_code_of(const std::function<int()>& body, bool may_be_rank,
                 std::chrono::milliseconds patience = kSpeakerPatience);

}  // namespace titan
