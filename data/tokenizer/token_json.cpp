#include "data/tokenizer/token_json.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_error.h"
#include "base/limits/parse_json.h"

namespace titan::data {

std::string ids_to_json(std::span<const std::int32_t> ids) {
  std::string text = "[";
  for (const std::int32_t id : ids) {
    if (text.size() > 1) text += ',';
    text += std::to_string(id);
  }
  return text + "]";
}

std::vector<std::int32_t> ids_from_json(std::string_view line) {
  const std::string expected = "expected a JSON array of token ids, found ";
  nlohmann::json array;
  try {
    array = parse_json<nlohmann::json>(line);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(expected + "no JSON: " + json_error_text(error.what()));
  }
  if (!array.is_array()) throw DataError(expected + "a JSON " + array.type_name());
  std::vector<std::int32_t> ids;
  ids.reserve(array.size());
  for (const auto& id : array) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX)
      throw DataError(expected + id.dump() + " in it");
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

std::string string_to_json(const std::string& text) { return nlohmann::json(text).dump(); }

std::string text_to_json(const std::string& text) { return nlohmann::json{{"text", text}}.dump(); }

}  // namespace titan::data
