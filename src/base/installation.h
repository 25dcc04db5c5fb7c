// Finds the files that were installed with the program.
#pragma once

#include <filesystem>
#include <string>

namespace titan {

// Returns the program's file, with links resolved.
std::filesystem::path program_file();

// Returns the folder that has lib/, configs/ and assets/ of this program: where `cmake --install` put them, or the
// package titan_train of the Python environment that pip installed the program to. Empty in a build folder.
std::filesystem::path installed_folder();

// Returns the path of a library of this program. Called in a library of the program, the engine: beside that one, also
// in the process of another program. Called in the program: in lib/ of installed_folder(), or beside the program in a
// build folder.
std::filesystem::path library_of_program(const std::string& name);

}  // namespace titan
