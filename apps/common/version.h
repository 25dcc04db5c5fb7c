// --version: the facts that a bug report should begin with.
#pragma once

#include <string>

namespace titan {

// Returns the program's version, revision and compiler, and the versions of its libraries. Needs no GPU.
std::string version_text();

// Returns the version and revision of the sources, which a program and its engine must have in common.
const char* build_name();

}  // namespace titan
