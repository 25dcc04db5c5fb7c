// Tells src/config about models, devices and commands before the tests run, as the program does.
#include "apps/command_table.h"

namespace titan {
namespace {

[[maybe_unused]] const bool kIsDescribed = [] {
  describe_program();
  return true;
}();

}  // namespace
}  // namespace titan
