// Runs training to its end, and maps the end to a message and an exit code.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "train/trainer.h"

namespace titan {

// Trains. Collective. Throws what Trainer::train() throws; a failed allocation becomes an Error that says how much was
// requested and which keys reduce memory. After a failure the trainer is not destroyed: its destructor waits for a
// save in progress, which may wait for a rank that is gone.
train::Trainer::End train_to_the_end(std::unique_ptr<train::Trainer> trainer);

// Returns how much was requested ("a tensor of 2.00 GiB") if `error` is a failed allocation; nullopt for other errors.
std::optional<std::string> refused_allocation(const std::exception& error);

// Returns the exit code. Only a saved run can be resumed: a run stopped without a save returns the signal's code, like
// any program that a signal ends.
int exit_code_of_end(train::Trainer::End end);

}  // namespace titan
