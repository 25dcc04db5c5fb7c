// Lists the commands of the program: names, one line about each, and their flags. No torch.
#pragma once

namespace titan {

// Tells src/config about commands, models and devices, for --help, completion, docs and checks. The program and the
// engine each have a copy of src/config; both call this once at startup.
void describe_program();

}  // namespace titan
