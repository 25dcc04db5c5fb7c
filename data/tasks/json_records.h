// Records of a task's files: JSON lines, one object each, whose fields are read with errors that name file and line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace titan::data {

class JsonRecord {
 public:
  // Parses a line. `place`: "file:line". Throws DataError if it is not a JSON object.
  JsonRecord(std::string place, const std::string& line);

  const std::string& place() const { return place_; }

  // Return the value of a field. Throw DataError, naming place and field, if it is missing or of another type.
  const std::string& text(const std::string& field) const;
  std::vector<std::string> texts(const std::string& field) const;
  std::int64_t integer(const std::string& field) const;
  // Returns an integer that may also be written as a string: "3".
  std::int64_t integer_or_digits(const std::string& field) const;
  // Returns the object of a field as a record of its own.
  JsonRecord object(const std::string& field) const;

  // Returns the object as JSON that is the same for equal objects.
  std::string to_json() const { return object_.dump(); }

  // Throws DataError: "file:line: `problem`".
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  JsonRecord(std::string place, std::string prefix, nlohmann::json object)
      : place_(std::move(place)), prefix_(std::move(prefix)), object_(std::move(object)) {}
  const nlohmann::json& value(const std::string& field) const;
  [[noreturn]] void fail_type(const std::string& field, const std::string& expected) const;

  std::string place_;
  std::string prefix_;  // of names of fields in messages: "choices."
  nlohmann::json object_;
};

// Calls `use` for the first `limit` records of the files at `path`, in order. `path` is a file, or a folder with
// *.jsonl or *.json files, which may be compressed. Skips blank lines. Throws DataError, also if there is no record.
void for_each_record(const std::filesystem::path& path, const std::function<void(const JsonRecord&)>& use,
                     std::int64_t limit = std::numeric_limits<std::int64_t>::max());

}  // namespace titan::data
