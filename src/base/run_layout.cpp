#include "base/run_layout.h"

#include <charconv>

namespace titan::layout {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kStepPrefix = "step-";

}  // namespace

std::string step_name(std::int64_t step) { return std::string(kStepPrefix) + std::to_string(step); }

std::optional<int> step_of(std::string_view name, std::string_view suffix) {
  if (!name.starts_with(kStepPrefix) || !name.ends_with(suffix)) return std::nullopt;
  if (name.size() <= kStepPrefix.size() + suffix.size()) return std::nullopt;
  const std::string_view digits = name.substr(kStepPrefix.size(), name.size() - kStepPrefix.size() - suffix.size());
  int step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0 || std::to_string(step) != digits)
    return std::nullopt;
  return step;
}

bool is_complete_save(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kMetadataFile, error) || fs::is_regular_file(folder / kHuggingFaceIndex, error) ||
         fs::is_regular_file(folder / kAdapterConfig, error) || fs::is_regular_file(folder / kModelFile, error);
}

fs::path config_of_step(const fs::path& step_folder) {
  return fs::weakly_canonical(step_folder).parent_path().parent_path() / kConfigFile;
}

}  // namespace titan::layout
