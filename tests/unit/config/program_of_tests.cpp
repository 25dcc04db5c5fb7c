// Describes models, devices and commands to src/config before the tests, as the program does.
#include "apps/command_table.h"

namespace titan {
namespace {

[[maybe_unused]] const bool kIsDescribed = [] {
  describe_program();
  return true;
}();

}  // namespace
}  // namespace titan
