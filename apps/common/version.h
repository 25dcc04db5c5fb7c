// --version: what a report of a problem should begin with.
#pragma once

#include <string>

namespace titan {

// This program, its revision and compiler, and the libraries that it is built on. Needs no GPU.
std::string version_text();

}  // namespace titan
