#include "models/catalog.h"

#include <algorithm>
#include <array>

#include "models/common/check_shape.h"
#include "models/llama3/flavors.h"
#include "models/qwen3/flavors.h"

namespace titan::models {
namespace {

constexpr std::array kCatalog = {
    CatalogEntry{"llama3", llama_flavor_names, llama_starts, check_llama_args},
    CatalogEntry{"llama2", llama_flavor_names, llama_starts, check_llama_args},
    CatalogEntry{"qwen3", qwen3_flavor_names, qwen3_starts, check_qwen3_args},
};

}  // namespace

std::span<const CatalogEntry> catalog() { return kCatalog; }

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : kCatalog) names.emplace_back(entry.name);
  return names;
}

std::vector<std::string> flavor_names() {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : kCatalog)
    for (const std::string& flavor : entry.flavors(entry.name))
      if (std::ranges::count(names, flavor) == 0) names.push_back(flavor);
  return names;
}

void check_model(const config::JobConfig& config, std::vector<config::Fault>& errors) {
  for (const CatalogEntry& entry : kCatalog)
    if (config.model.name == entry.name) return entry.check_args(config, errors);
  check_decoder_args(config, errors);
}

}  // namespace titan::models
