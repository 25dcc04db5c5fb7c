#include "models/common/hub/hub_names.h"

#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace titan::models {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kOurLayers = "layers.", kTheirLayers = "model.layers.";

// A parameter of a block: "layers.3.attention.wq.weight" is number "3" of "attention.wq".
struct InBlock {
  std::string number;
  std::string module;
};

std::optional<InBlock> in_block(std::string_view name, std::string_view layers) {
  if (!name.starts_with(layers) || !name.ends_with(kWeight)) return std::nullopt;
  name.remove_prefix(layers.size());
  const auto dot = name.find('.');
  if (dot + kWeight.size() >= name.size()) return std::nullopt;
  const std::string number(name.substr(0, dot));
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return InBlock{number, std::string(name.substr(dot + 1, name.size() - kWeight.size() - dot - 1))};
}

std::string in_layer(std::string_view layers, const InBlock& block, const std::string& module) {
  return std::string(layers) + block.number + "." + module + std::string(kWeight);
}

// Finds names in both directions.
class Lookup {
 public:
  explicit Lookup(const HubNames& names) {
    for (const HubName& each : names.outside) {
      const std::string ours = each.ours + std::string(kWeight), theirs = each.theirs + std::string(kWeight);
      outside_to_hub_[ours] = {theirs, each.rotary_heads};
      outside_from_hub_[theirs] = ours;
    }
    for (const HubName& each : names.block) {
      block_to_hub_[each.ours] = each;
      block_from_hub_[each.theirs] = each.ours;
    }
  }

  std::vector<HubTensor> to_hub(const std::string& fqn) const {
    if (const auto found = outside_to_hub_.find(fqn); found != outside_to_hub_.end()) return {found->second};
    if (const auto block = in_block(fqn, kOurLayers))
      if (const auto found = block_to_hub_.find(block->module); found != block_to_hub_.end())
        return {{in_layer(kTheirLayers, *block, found->second.theirs), found->second.rotary_heads}};
    throw InternalError(fqn + " has no name in Hugging Face's format");
  }

  std::optional<HubOrigin> from_hub(const std::string& name) const {
    if (const auto found = outside_from_hub_.find(name); found != outside_from_hub_.end())
      return HubOrigin{found->second};
    if (const auto block = in_block(name, kTheirLayers))
      if (const auto found = block_from_hub_.find(block->module); found != block_from_hub_.end())
        return HubOrigin{in_layer(kOurLayers, *block, found->second)};
    return std::nullopt;
  }

 private:
  std::map<std::string, HubTensor> outside_to_hub_;
  std::map<std::string, std::string> outside_from_hub_, block_from_hub_;
  std::map<std::string, HubName> block_to_hub_;
};

}  // namespace

void set_names(ModelNaming& naming, const HubNames& names) {
  const Lookup lookup(names);
  naming.to_hub = [lookup](const std::string& fqn) { return lookup.to_hub(fqn); };
  naming.from_hub = [lookup](const std::string& name) { return lookup.from_hub(name); };
}

}  // namespace titan::models
