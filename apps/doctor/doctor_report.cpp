#include "apps/doctor/doctor_report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace titan::doctor {
namespace {

constexpr std::array<const char*, 3> kStates = {"ok", "warning", "failure"};
constexpr std::size_t kNameWidth = 20;

const char* state_text(State state) { return kStates[static_cast<std::size_t>(state)]; }

// Indents all lines of `text` but the first by `width`.
std::string indented(const std::string& text, std::size_t width) {
  std::string out;
  for (const char c : text) out += c == '\n' ? "\n" + std::string(width, ' ') : std::string(1, c);
  return out;
}

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.empty()) return "";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text + ": ";
}

std::string line_of(const Finding& finding) {
  constexpr std::size_t kIndent = 10 + kNameWidth;
  const auto& [check, ranks] = finding;
  std::string line = fmt::format("{:<9} {:<{}}", state_text(check.state), check.name, kNameWidth) +
                     indented(ranks_text(ranks) + check.found, kIndent) + "\n";
  if (!check.advice.empty()) line += std::string(kIndent, ' ') + "to do: " + indented(check.advice, kIndent) + "\n";
  return line;
}

std::int64_t count(const std::vector<Finding>& findings, State state) {
  return std::ranges::count_if(findings, [&](const auto& finding) { return finding.check.state == state; });
}

nlohmann::json json_of(const Check& check) {
  return {{"name", check.name}, {"state", state_text(check.state)}, {"found", check.found}, {"advice", check.advice}};
}

}  // namespace

std::vector<Finding> merge(const std::vector<Checks>& by_rank) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<Finding>> by_name;
  for (int rank = 0; rank < static_cast<int>(by_rank.size()); ++rank) {
    for (const auto& check : by_rank[static_cast<std::size_t>(rank)]) {
      if (!by_name.contains(check.name)) names.push_back(check.name);
      auto& list = by_name[check.name];
      auto found = std::ranges::find(list, check, &Finding::check);
      if (found == list.end()) found = list.insert(list.end(), {check});
      found->ranks.push_back(rank);
    }
  }
  std::vector<Finding> findings;
  for (const auto& name : names) {
    for (auto& finding : by_name[name]) {
      if (finding.ranks.size() == by_rank.size()) finding.ranks.clear();
      findings.push_back(std::move(finding));
    }
  }
  return findings;
}

bool has_failure(const std::vector<Finding>& findings) { return count(findings, State::kFailure) > 0; }

std::string to_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const auto& finding : findings) text += line_of(finding);
  const auto failures = count(findings, State::kFailure), warnings = count(findings, State::kWarning);
  if (failures + warnings == 0) return text + "\nall is well\n";
  std::vector<std::string> words;
  if (failures > 0) words.push_back(counted(failures, "failure"));
  if (warnings > 0) words.push_back(counted(warnings, "warning"));
  return text + "\n" + join(words, ", ") + "\n";
}

std::string to_json(const std::vector<Finding>& findings) {
  auto checks = nlohmann::json::array();
  for (const auto& finding : findings) {
    auto each = json_of(finding.check);
    each["ranks"] = finding.ranks.empty() ? nlohmann::json() : nlohmann::json(finding.ranks);
    checks.push_back(std::move(each));
  }
  return nlohmann::json{{"ok", !has_failure(findings)}, {"checks", std::move(checks)}}.dump(2) + "\n";
}

std::string to_message(const Checks& checks) {
  auto list = nlohmann::json::array();
  for (const auto& check : checks) list.push_back(json_of(check));
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Checks from_message(const std::string& message) {
  Checks checks;
  for (const auto& each : nlohmann::json::parse(message)) {
    const auto state = std::ranges::find(kStates, each.at("state").get<std::string>());
    TITAN_CHECK(state != kStates.end(), "a check in a state that nobody knows");
    checks.push_back(
        {each.at("name"), static_cast<State>(state - kStates.begin()), each.at("found"), each.at("advice")});
  }
  return checks;
}

}  // namespace titan::doctor
