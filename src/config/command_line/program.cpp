#include "config/command_line/program.h"

#include <algorithm>

#include "base/text.h"
#include "config/keys/datasets.h"

namespace titan::config {
namespace {

Program& mutable_program() {
  static Program program;
  return program;
}

}  // namespace

void set_program(Program program) { mutable_program() = std::move(program); }
const Program& program() { return mutable_program(); }

const Command* find_command(std::string_view name) {
  const auto found = std::ranges::find(program().commands, name, &Command::name);
  return found == program().commands.end() ? nullptr : &*found;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : program().commands) names.push_back(command.name);
  return names;
}

std::vector<std::string> usual_values(std::string_view name) {
  if (name == "training.dataset" || name == "validation.dataset") return dataset_kinds();
  const auto found = program().usual_values.find(name);
  return found == program().usual_values.end() ? std::vector<std::string>{} : found->second;
}

std::string doc_of(const Field& field) {
  const std::string doc = field.doc;
  return doc.ends_with(':') ? doc + " " + join(usual_values(field.key), " or ") : doc;
}

}  // namespace titan::config
