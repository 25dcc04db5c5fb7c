// The part of the program that needs torch, as a library of its own: libtitan_engine.so. A launcher, a sweep or --help
// does not load it and starts in milliseconds; loading torch's libraries takes a fifth of a second.
#pragma once

#include <string>
#include <vector>

// Runs the program with these arguments, except for the modes that need no torch (titan_train.cpp). Prints errors
// itself. Returns the exit code.
extern "C" int titan_run_engine(int argc, char** argv);

// Returns the version and revision of the sources that the library was built from.
extern "C" const char* titan_engine_build();

namespace titan {

// Loads the library and calls titan_run_engine() with `args`, without the program's name. The library is beside the
// program, or in ../lib if installed. Throws Error if it cannot be loaded.
int run_engine(std::vector<std::string> args);

}  // namespace titan
