// Lists the commands of the program: names, one line about each, and their flags. No torch.
#pragma once

namespace titan {

// Tells src/config about commands, models and devices: for --help, completion, docs and checks. The program and the
// engine, which have a copy of src/config each, call it once at their start.
void describe_program();

}  // namespace titan
