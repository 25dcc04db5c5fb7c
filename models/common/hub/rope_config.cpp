#include "models/common/hub/rope_config.h"

#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "models/common/hub/config_values.h"
#include "models/common/hub/float_text.h"

namespace titan::models {
namespace {

using Json = nlohmann::json;

constexpr std::array kTypes = {std::pair(RopeScalingType::kLlama3, "llama3"),
                               std::pair(RopeScalingType::kLinear, "linear"),
                               std::pair(RopeScalingType::kYarn, "yarn")};

double number_of(const Json& table, const char* key) {
  const Json* found = find(table, key);
  if (!found || !found->is_number())
    throw ConfigError(std::string(key) + " of the rotary scaling: expected a number, found " +
                      (found ? found->dump() : "nothing"));
  return found->get<double>();
}

// Returns YaRN's attention factor where two further values decide it, as in DeepSeek-V3.
std::optional<double> attention_factor_of(const Json& rope, double factor) {
  if (find(rope, "attention_factor")) return number_of(rope, "attention_factor");
  const double part = value_or(rope, "mscale", 0.0), all = value_or(rope, "mscale_all_dim", 0.0);
  if (part == 0 || all == 0 || factor <= 1) return std::nullopt;
  return (0.1 * part * std::log(factor) + 1) / (0.1 * all * std::log(factor) + 1);
}

RopeScaling read_scaling(const Json& rope, RopeScalingType type, std::int64_t max_positions,
                         std::vector<std::string>& faults) {
  RopeScaling scaling{.type = type};
  if (type != RopeScalingType::kLinear)
    scaling.original_max_position_embeddings = value_or(rope, "original_max_position_embeddings", max_positions);
  const bool is_ratio = type == RopeScalingType::kYarn && rope.contains("factor") && rope.at("factor").is_null();
  scaling.scaling_factor =
      is_ratio ? static_cast<double>(max_positions) / static_cast<double>(scaling.original_max_position_embeddings)
               : number_of(rope, "factor");
  if (type == RopeScalingType::kLlama3) {
    scaling.low_freq_factor = number_of(rope, "low_freq_factor");
    scaling.high_freq_factor = number_of(rope, "high_freq_factor");
  }
  if (type == RopeScalingType::kYarn) {
    if (const double fast = value_or(rope, "beta_fast", 0.0); fast != 0) scaling.beta_fast = fast;
    if (const double slow = value_or(rope, "beta_slow", 0.0); slow != 0) scaling.beta_slow = slow;
    scaling.attention_factor = attention_factor_of(rope, scaling.scaling_factor);
    if (!value_or(rope, "truncate", true))
      faults.push_back("truncate of the rotary scaling: expected true, found false");
  }
  return scaling;
}

std::vector<std::string> known_types() {
  std::vector<std::string> names = {"\"default\""};
  for (const auto& [type, name] : kTypes) names.push_back("\"" + std::string(name) + "\"");
  return names;
}

}  // namespace

const char* name_of(RopeScalingType type) {
  for (const auto& [each, name] : kTypes)
    if (each == type) return name;
  throw InternalError("a type of rotary scaling has no name");
}

std::optional<RopeScalingType> rope_scaling_type(const std::string& name) {
  for (const auto& [type, each] : kTypes)
    if (name == each) return type;
  return std::nullopt;
}

// The table is rope_scaling, or rope_parameters if rope_scaling is missing or empty. The base is in the table, else at
// the top level.
RopeConfig read_rope(const Json& config, std::int64_t max_positions, double theta, std::vector<std::string>& faults) {
  static const Json kNone = Json::object();
  RopeConfig out;
  const Json* scaling = find(config, "rope_scaling");
  const Json* parameters = find(config, "rope_parameters");
  const Json& rope = scaling && !scaling->empty() ? *scaling : parameters ? *parameters : kNone;
  if (!rope.is_object()) throw ConfigError("rope_scaling: expected a table, found " + rope.dump());
  for (const auto& [key, value] : rope.items())
    if (value.is_object()) {
      faults.push_back("rope_parameters: expected one rotary embedding for all layers, found a table \"" + key + "\"");
      return out;
    }
  out.theta = value_or(rope, "rope_theta", value_or(config, "rope_theta", theta));
  const double rotated = value_or(rope, "partial_rotary_factor", value_or(config, "partial_rotary_factor", 1.0));
  if (rotated != 1) faults.push_back("partial_rotary_factor: expected 1, found " + std::to_string(rotated));
  const auto kind = value_or<std::string>(rope, "rope_type", value_or<std::string>(rope, "type", "default"));
  if (kind == "default") return out;
  if (const auto type = rope_scaling_type(kind)) {
    out.scaling = read_scaling(rope, *type, max_positions, faults);
  } else {
    faults.push_back("rope_type: expected " + join(known_types(), " or ") + ", found \"" + kind + "\"");
  }
  return out;
}

std::string rope_scaling_json(const std::optional<RopeScaling>& scaling) {
  if (!scaling) return "null";
  std::map<std::string, std::string> values = {{"factor", float_text(scaling->scaling_factor)},
                                               {"rope_type", "\"" + std::string(name_of(scaling->type)) + "\""}};
  if (scaling->type != RopeScalingType::kLinear)
    values["original_max_position_embeddings"] = std::to_string(scaling->original_max_position_embeddings);
  if (scaling->type == RopeScalingType::kLlama3) {
    values["high_freq_factor"] = float_text(scaling->high_freq_factor);
    values["low_freq_factor"] = float_text(scaling->low_freq_factor);
  }
  if (scaling->type == RopeScalingType::kYarn) {
    values["beta_fast"] = float_text(scaling->beta_fast);
    values["beta_slow"] = float_text(scaling->beta_slow);
    if (scaling->attention_factor) values["attention_factor"] = float_text(*scaling->attention_factor);
  }
  std::vector<std::string> lines;
  for (const auto& [key, value] : values) lines.push_back("    \"" + key + "\": " + value);
  return "{\n" + join(lines, ",\n") + "\n  }";
}

}  // namespace titan::models
