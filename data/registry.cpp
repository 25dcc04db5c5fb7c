#include "data/registry.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"

namespace titan::data {
namespace {

struct DatasetKind {
  const char* name;
  std::unique_ptr<TextSource> (*open)(const std::filesystem::path& path);
};

constexpr DatasetKind kDatasets[] = {
    {"text", open_text_files},
    {"jsonl", open_jsonl_files},
    {"c4_test", open_jsonl_files},  // TorchTitan's name for JSON lines with "text", in file order
};

}  // namespace

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const DatasetKind& kind : kDatasets) names.emplace_back(kind.name);
  return names;
}

std::unique_ptr<TextSource> open_dataset(const std::string& name, const std::filesystem::path& path) {
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const DatasetKind& kind : kDatasets) {
    if (lower == kind.name) return kind.open(path);
  }
  const std::vector<std::string> names = dataset_names();
  const auto nearest = nearest_name(lower, names);
  throw DataError("unknown dataset \"" + name + "\"." + (nearest ? " Did you mean \"" + *nearest + "\"?" : "") +
                  " Known: " + join(names, ", ") +
                  ". Datasets that are streamed from a network (c4, c4_validation) must be downloaded as JSON lines "
                  "first and read as jsonl.");
}

}  // namespace titan::data
