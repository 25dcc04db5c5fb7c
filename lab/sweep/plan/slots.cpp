#include "lab/sweep/plan/slots.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "base/process/processors.h"
#include "base/text.h"

namespace titan::sweep {
namespace {

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

std::string count(std::size_t number, const std::string& what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

// /dev/nvidia0, /dev/nvidia1, ...
std::vector<std::string> gpus_of_machine() {
  std::vector<std::string> out;
  while (std::filesystem::exists("/dev/nvidia" + std::to_string(out.size()))) out.push_back(std::to_string(out.size()));
  return out;
}

// Lowers `room` to the number of trials that fit, if the machine has `has` and each trial takes
// `takes`. Throws ConfigError if that is too few.
void check_room(const SweepSpec& spec, std::size_t has, std::size_t takes, const std::string& what, std::size_t& room) {
  room = std::min(room, has / takes);
  const std::size_t wanted = to_size(spec.max_parallel.value_or(1));
  if (room >= wanted) return;
  throw ConfigError("error: " + count(wanted, "trial") + " at once with " + count(takes, what) + " each " +
                    (wanted == 1 ? "needs " : "need ") + std::to_string(wanted * takes) + ", and there " +
                    (has == 1 ? "is " : "are ") + std::to_string(has) + "; lower sweep.max_parallel or sweep." + what +
                    "s");
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == '\'' ? c == '\'' : quote == '"' && c == '"') {
      quote = 0;
    } else if (!quote && (c == '\'' || c == '"')) {
      quote = c;
      in_word = true;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      in_word = true;
    } else if (!quote && std::isspace(static_cast<unsigned char>(c))) {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote) throw ConfigError(std::string("error: the launcher has an open ") + quote + ": " + text);
  if (in_word) words.push_back(word);
  return words;
}

std::string fill_word(const std::string& word, const std::map<std::string, std::string>& values) {
  std::string out;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const auto end = word[i] == '{' ? word.find('}', i) : std::string::npos;
    if (end == std::string::npos) {
      out += word[i];
      continue;
    }
    const auto it = values.find(word.substr(i + 1, end - i - 1));
    if (it == values.end())
      throw ConfigError("error: the launcher has " + word.substr(i, end - i + 1) +
                        "; known are {ranks}, {cores}, {gpus}, {name}, {folder}, and {command} as a word of its own");
    out += it->second;
    i = end;
  }
  return out;
}

}  // namespace

Machine find_machine() {
  Machine machine;
  machine.cores = own_processors().cores;
  if (const auto visible = get_env("CUDA_VISIBLE_DEVICES")) {
    for (const auto& gpu : split(*visible, ','))
      if (!trim(gpu).empty()) machine.gpus.emplace_back(trim(gpu));
  } else {
    machine.gpus = gpus_of_machine();
  }
  return machine;
}

std::vector<Slot> make_slots(const SweepSpec& spec, const Machine& machine) {
  if (!spec.launcher.empty()) {
    if (!spec.max_parallel)
      throw ConfigError(
          "error: a launcher decides itself where trials run; say with sweep.max_parallel (or "
          "--max-parallel) how many it gets at once");
    return std::vector<Slot>(to_size(std::min(*spec.max_parallel, kMostTrials)));
  }
  std::size_t room = machine.cores.size();
  if (spec.gpus > 0) check_room(spec, machine.gpus.size(), to_size(spec.gpus), "gpu", room);
  if (spec.max_parallel) room = std::min(room, to_size(*spec.max_parallel));
  // By default, a trial on GPUs takes its share of the cores, and one on the CPU one core per rank.
  const std::size_t share = spec.gpus > 0 ? machine.cores.size() / room : to_size(spec.nproc);
  const std::size_t cores = spec.cores ? to_size(*spec.cores) : std::clamp<std::size_t>(share, 1, machine.cores.size());
  room = machine.cores.size();
  check_room(spec, machine.cores.size(), cores, "core", room);
  if (spec.gpus > 0) check_room(spec, machine.gpus.size(), to_size(spec.gpus), "gpu", room);
  if (spec.max_parallel) room = std::min(room, to_size(*spec.max_parallel));
  std::vector<Slot> slots(room);
  for (std::size_t i = 0; i < room; ++i) {
    const auto part = [&](const auto& all, std::size_t size) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * size);
      return std::decay_t<decltype(all)>(begin, begin + static_cast<std::ptrdiff_t>(size));
    };
    slots[i] = {part(machine.cores, cores), part(machine.gpus, to_size(spec.gpus))};
  }
  return slots;
}

std::vector<std::string> fill_launcher(const std::string& launcher, const LaunchValues& values,
                                       const std::vector<std::string>& command) {
  const std::map<std::string, std::string> known = {{"ranks", std::to_string(values.ranks)},
                                                    {"cores", std::to_string(values.cores)},
                                                    {"gpus", std::to_string(values.gpus)},
                                                    {"name", values.name},
                                                    {"folder", values.folder}};
  std::vector<std::string> out;
  bool placed = false;
  for (const auto& word : split_words(launcher)) {
    if (word == "{command}") {
      out.insert(out.end(), command.begin(), command.end());
      placed = true;
    } else {
      out.push_back(fill_word(word, known));
    }
  }
  if (!placed) out.insert(out.end(), command.begin(), command.end());
  return out;
}

}  // namespace titan::sweep
