#include "models/common/hugging_face_config.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace titan::models {

std::string architecture_of(const std::string& config_json) {
  try {
    return nlohmann::json::parse(config_json).at("architectures").at(0).get<std::string>();
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError(error.what());
  }
}

}  // namespace titan::models
