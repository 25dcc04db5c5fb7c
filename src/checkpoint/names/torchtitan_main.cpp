#include "checkpoint/names/torchtitan_main.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace titan::checkpoint {
namespace {

// Both names of a module, with the dots around them; a key is searched with a dot before it.
struct Renamed {
  std::string_view own;
  std::string_view main;
};

constexpr std::string_view kMainAttention = ".attention.qkv_linear.", kFused = ".attention.qkv_linear.wqkv.";
constexpr std::array<Renamed, 3> kAttention = {{{".attention.wq.", ".attention.qkv_linear.wq."},
                                                {".attention.wk.", ".attention.qkv_linear.wk."},
                                                {".attention.wv.", ".attention.qkv_linear.wv."}}};
constexpr Renamed kOutput = {".output.weight", ".lm_head.weight"};

bool contains(const std::string& key, std::string_view name) { return ("." + key).find(name) != std::string::npos; }

std::string replaced(const std::string& key, std::string_view Renamed::*from, std::string_view Renamed::*to) {
  std::string dotted = "." + key;
  for (const Renamed& name : {kAttention[0], kAttention[1], kAttention[2], kOutput}) {
    const auto at = dotted.find(name.*from);
    if (at == std::string::npos) continue;
    dotted.replace(at, (name.*from).size(), name.*to);
    return dotted.substr(1);
  }
  return key;
}

// Returns the first key that contains `name`; null if none does.
const std::string* find_name(const std::vector<std::string>& keys, std::string_view name) {
  const auto found = std::ranges::find_if(keys, [&](const auto& key) { return contains(key, name); });
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace

std::string to_own_names(const std::string& key) { return replaced(key, &Renamed::main, &Renamed::own); }

std::string to_main_names(const std::string& key) { return replaced(key, &Renamed::own, &Renamed::main); }

bool has_main_names(const std::vector<std::string>& keys, const std::string& what) {
  const std::string* main_attention = find_name(keys, kMainAttention);
  if (main_attention == nullptr) return false;
  std::vector<std::pair<const std::string*, const std::string*>> names;
  for (const Renamed& name : kAttention) names.emplace_back(find_name(keys, name.own), main_attention);
  names.emplace_back(find_name(keys, kOutput.own), find_name(keys, kOutput.main));
  for (const auto& [own, main] : names)
    if (own != nullptr && main != nullptr)
      throw CheckpointError(what + " mixes the names of two versions of TorchTitan: " + *own + " is of 0.2.2, " +
                            *main +
                            " of the main branch. Expected one version's for all parameters: write it again "
                            "with one of them");
  return true;
}

bool is_fused(const std::string& key) { return contains(key, kFused); }

CheckpointError fused_error(const std::string& what, const std::string& key) {
  return CheckpointError(
      what + " has " + key +
      ", one tensor for wq, wk and wv, which have one each here. TorchTitan's main branch saves such weights apart "
      "since June 2026, but not the optimizer's state, unless the model has fuse_qkv = False: save it again so, or "
      "load "
      "the weights alone (checkpoint.initial_load_path, or checkpoint.exclude_from_loading = [\"optimizer\", "
      "\"lr_scheduler\"])");
}

std::vector<std::string> own_names(const std::vector<std::string>& keys, const std::vector<std::string>& wanted,
                                   const std::string& what) {
  if (find_name(wanted, kMainAttention) != nullptr || !has_main_names(keys, what)) return keys;
  const std::unordered_set<std::string> names(wanted.begin(), wanted.end());
  std::vector<std::string> own;
  for (const std::string& key : keys) {
    if (is_fused(key)) {
      std::string part = "." + key;
      part.replace(part.find(kFused), kFused.size(), kAttention[0].own);
      if (names.contains(part.substr(1))) throw fused_error(what, key);
    }
    own.push_back(to_own_names(key));
  }
  return own;
}

}  // namespace titan::checkpoint
