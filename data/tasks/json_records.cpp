#include "data/tasks/json_records.h"

#include <charconv>
#include <fstream>

#include "base/error.h"
#include "base/json_error.h"
#include "base/limits/parse_json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/io/decompress.h"
#include "data/sources/jsonl_source.h"

namespace titan::data {
namespace {

nlohmann::json parse_line(const std::string& place, const std::string& line) {
  // Checks first: the parser's message for invalid UTF-8 is unclear.
  if (const auto bad = find_invalid_utf8(line))
    throw DataError(place + ": byte " + std::to_string(*bad) + " of the line is not valid UTF-8");
  try {
    nlohmann::json object = parse_json<nlohmann::json>(line);
    if (object.is_object()) return object;
    throw DataError(place + ": expected a JSON object, found " + object.type_name());
  } catch (const nlohmann::json::exception& error) {
    const JsonError problem = explain_json_error(error.what());
    throw DataError(place + ":" + std::to_string(problem.column) + ": not a JSON object: " + problem.reason);
  }
}

}  // namespace

JsonRecord::JsonRecord(std::string place, const std::string& line)
    : place_(std::move(place)), object_(parse_line(place_, line)) {}

void JsonRecord::fail(const std::string& problem) const { throw DataError(place_ + ": " + problem); }

void JsonRecord::fail_type(const std::string& field, const std::string& expected) const {
  fail("\"" + prefix_ + field + "\": expected " + expected + ", found " + object_.at(field).dump());
}

const nlohmann::json& JsonRecord::value(const std::string& field) const {
  if (const auto found = object_.find(field); found != object_.end()) return *found;
  std::vector<std::string> names;
  for (const auto& [name, each] : object_.items()) names.push_back(name);
  fail("the object has no \"" + prefix_ + field + "\" (its fields: " + join(names, ", ") + ")");
}

const std::string& JsonRecord::text(const std::string& field) const {
  const nlohmann::json& found = value(field);
  if (!found.is_string()) fail_type(field, "a string");
  return found.get_ref<const std::string&>();
}

std::vector<std::string> JsonRecord::texts(const std::string& field) const {
  const nlohmann::json& found = value(field);
  std::vector<std::string> out;
  if (!found.is_array()) fail_type(field, "a list of strings");
  for (const nlohmann::json& each : found) {
    if (!each.is_string()) fail_type(field, "a list of strings");
    out.push_back(each.get<std::string>());
  }
  return out;
}

std::int64_t JsonRecord::integer(const std::string& field) const {
  const auto found = integer_of(value(field));
  if (!found) fail_type(field, "an integer");
  return *found;
}

std::int64_t JsonRecord::integer_or_digits(const std::string& field) const {
  const nlohmann::json& found = value(field);
  if (!found.is_string()) return integer(field);
  const auto& digits = found.get_ref<const std::string&>();
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) fail_type(field, "an integer");
  return number;
}

JsonRecord JsonRecord::object(const std::string& field) const {
  const nlohmann::json& found = value(field);
  if (!found.is_object()) fail_type(field, "an object");
  return {place_, prefix_ + field + ".", found};
}

void for_each_record(const std::filesystem::path& path, const std::function<void(const JsonRecord&)>& use,
                     std::int64_t limit) {
  std::int64_t count = 0;
  for (const std::filesystem::path& file : list_jsonl_files(path)) {
    std::ifstream lines(is_compressed(file) ? decompressed_copy(file) : file);
    if (!lines) throw DataError("cannot read " + file.string());
    std::string line;
    for (std::int64_t number = 1; count < limit && std::getline(lines, line); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      use(JsonRecord(file.string() + ":" + std::to_string(number), line));
      ++count;
    }
    if (lines.bad()) throw DataError("cannot read " + file.string());
  }
  if (count == 0) throw DataError("no record in " + path.string() + ": it has no line that is not blank");
}

}  // namespace titan::data
