// All of the program that needs torch, as a library of its own: libtitan_engine.so. Without it a launcher, a sweep or
// --help starts in milliseconds; torch's libraries take a fifth of a second.
#pragma once

#include <string>
#include <vector>

// What the program does with these arguments, but for the modes that need no torch (titan_train.cpp). Prints errors
// itself; the exit code.
extern "C" int titan_run_engine(int argc, char** argv);

namespace titan {

// Loads the library and calls that with `args`, which are without the program's name. It lies beside the program, or in
// ../lib where it is installed. Throws Error where it cannot be loaded.
int run_engine(std::vector<std::string> args);

}  // namespace titan
