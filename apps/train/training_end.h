// How training ends, and what the program says of it.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "train/trainer.h"

namespace titan {

// Trains. Collective. Throws what Trainer::train() throws, a failed allocation as an Error that says how much was asked
// for and which keys take less. A trainer that failed is not taken down: its end waits for a save under way, which may
// wait for a rank that is gone. The process ends with it.
train::Trainer::End train_to_the_end(std::unique_ptr<train::Trainer> trainer);

// "a tensor of 2.00 GiB": how much was asked for, where `error` says that there was no room for it. Nothing for other
// errors.
std::optional<std::string> refused_allocation(const std::exception& error);

// Only what is saved can be gone on with: without that the code is the signal's, as of any program that it ends.
int exit_code_of_end(train::Trainer::End end);

}  // namespace titan
