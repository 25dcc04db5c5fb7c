#include "models/common/hub/hub_names.h"

#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace titan::models {
namespace {

constexpr std::string_view kWeight = ".weight", kBias = ".bias";
constexpr std::string_view kOurLayers = "layers.", kTheirLayers = "model.layers.";

// A parameter of a block: "layers.3.attention.wq.weight" is number "3" of "attention.wq.weight".
struct InBlock {
  std::string number;
  std::string parameter;
};

std::optional<InBlock> in_block(std::string_view name, std::string_view layers) {
  if (!name.starts_with(layers)) return std::nullopt;
  name.remove_prefix(layers.size());
  const auto dot = name.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string number(name.substr(0, dot));
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return InBlock{number, std::string(name.substr(dot + 1))};
}

std::string in_layer(std::string_view layers, const InBlock& block, const std::string& parameter) {
  return std::string(layers) + block.number + "." + parameter;
}

// Finds names in both directions.
class Lookup {
 public:
  explicit Lookup(const HubNames& names) {
    add(names.outside, outside_to_hub_, outside_from_hub_);
    add(names.block, block_to_hub_, block_from_hub_);
  }

  std::vector<HubTensor> to_hub(const std::string& fqn) const {
    if (const auto found = outside_to_hub_.find(fqn); found != outside_to_hub_.end()) return {found->second};
    if (const auto block = in_block(fqn, kOurLayers))
      if (const auto found = block_to_hub_.find(block->parameter); found != block_to_hub_.end())
        return {{in_layer(kTheirLayers, *block, found->second.name), found->second.rotary_heads}};
    throw InternalError(fqn + " has no name in Hugging Face's format");
  }

  std::optional<HubOrigin> from_hub(const std::string& name) const {
    if (const auto found = outside_from_hub_.find(name); found != outside_from_hub_.end())
      return HubOrigin{found->second};
    if (const auto block = in_block(name, kTheirLayers))
      if (const auto found = block_from_hub_.find(block->parameter); found != block_from_hub_.end())
        return HubOrigin{in_layer(kOurLayers, *block, found->second)};
    return std::nullopt;
  }

 private:
  using ToHub = std::map<std::string, HubTensor>;
  using FromHub = std::map<std::string, std::string>;

  static void add(const std::vector<HubName>& names, ToHub& to_hub, FromHub& from_hub) {
    for (const HubName& each : names) {
      for (const std::string_view kind : {kWeight, kBias}) {
        if (kind == kBias && !each.has_bias) continue;
        const std::string ours = each.ours + std::string(kind), theirs = each.theirs + std::string(kind);
        to_hub[ours] = {theirs, each.rotary_heads};
        from_hub[theirs] = ours;
      }
    }
  }

  ToHub outside_to_hub_, block_to_hub_;
  FromHub outside_from_hub_, block_from_hub_;
};

}  // namespace

void set_names(ModelNaming& naming, const HubNames& names) {
  const Lookup lookup(names);
  naming.to_hub = [lookup](const std::string& fqn) { return lookup.to_hub(fqn); };
  naming.from_hub = [lookup](const std::string& name) { return lookup.from_hub(name); };
}

}  // namespace titan::models
