#include "tests/support/null_cuda/settings.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <vector>

namespace titan_null {
namespace {

struct Rule {
  std::string kind;
  long number = 1;
  int rank = -1;  // -1 is any
};

[[noreturn]] void refuse(const char* variable, const std::string& text) {
  std::fprintf(stderr, "null CUDA: cannot read \"%s\" in %s\n", text.c_str(), variable);
  ::_exit(99);
}

std::string text_of(const char* variable, const char* otherwise) {
  const char* const found = std::getenv(variable);
  return found && *found ? found : otherwise;
}

long number_of(const char* variable, const char* otherwise) {
  const std::string text = text_of(variable, otherwise);
  char* end = nullptr;
  const long number = std::strtol(text.c_str(), &end, 10);
  if (*end != '\0') refuse(variable, text);
  return number;
}

Settings read_settings() {
  Settings found;
  found.num_devices = static_cast<int>(number_of("NULL_CUDA_DEVICES", "8"));
  found.memory = static_cast<std::size_t>(number_of("NULL_CUDA_MEMORY", "85899345920"));
  found.machine = static_cast<int>(number_of("NULL_CUDA_MACHINE", "0"));
  found.driver_version = static_cast<int>(number_of("NULL_CUDA_DRIVER", "13000"));
  found.moved = static_cast<std::size_t>(number_of("NULL_CUDA_MOVED", "-1"));
  const std::string read = text_of("NULL_CUDA_READ", "memory");
  if (read != "memory" && read != "zeros") refuse("NULL_CUDA_READ", read);
  found.reads_zeros = read == "zeros";
  found.trace_folder = text_of("NULL_CUDA_TRACE", "");
  found.observer = text_of("NULL_CUDA_OBSERVER", "");
  const std::string capability = text_of("NULL_CUDA_CAPABILITY", "9.0");
  if (std::sscanf(capability.c_str(), "%d.%d", &found.major, &found.minor) != 2)
    refuse("NULL_CUDA_CAPABILITY", capability);
  return found;
}

bool is_kind(std::string_view word) {
  for (const char* kind : {"illegal_access", "hang_kernel", "kill", "out_of_memory", "hang", "remote_error"})
    if (word == kind) return true;
  return false;
}

std::vector<Rule> read_rules() {
  const char* const variable = "NULL_CUDA_FAULT";
  std::vector<Rule> rules;
  std::istringstream lines(text_of(variable, ""));
  for (std::string line; std::getline(lines, line, ';');) {
    std::istringstream words(line);
    Rule rule;
    for (std::string word; words >> word;) {
      const auto equals = word.find('=');
      const std::string key = word.substr(0, equals);
      if (equals == std::string::npos && is_kind(word))
        rule.kind = word;
      else if (key == "rank")
        rule.rank = std::atoi(word.c_str() + equals + 1);
      else if (key == "launch" || key == "malloc" || key == "collective")
        rule.number = std::atol(word.c_str() + equals + 1);
      else
        refuse(variable, word);
    }
    if (rule.kind.empty()) refuse(variable, line);
    rules.push_back(rule);
  }
  return rules;
}

}  // namespace

const Settings& settings() {
  static const auto& found = *new Settings(read_settings());
  return found;
}

int own_rank() {
  static const int rank = [] {
    for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
      if (const char* value = std::getenv(name)) return std::atoi(value);
    return 0;
  }();
  return rank;
}

bool is_faulty(const char* kind, long count) {
  static const auto& rules = *new std::vector<Rule>(read_rules());
  for (const Rule& rule : rules) {
    if (rule.kind != kind || (rule.rank >= 0 && rule.rank != own_rank())) continue;
    const bool is_once = rule.kind != "illegal_access" && rule.kind != "out_of_memory";
    if (is_once ? count == rule.number : count >= rule.number) return true;
  }
  return false;
}

}  // namespace titan_null
