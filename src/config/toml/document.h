// TOML as a plain tree whose values know their positions, so that errors can point at them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/keys/fields.h"
#include "config/keys/source.h"

namespace titan::config {

struct Member;

struct Node {
  enum class Kind { kTable, kArray, kScalar, kOther };  // kOther: dates and times, which no key accepts

  Kind kind = Kind::kOther;
  Position at;
  FieldValue scalar;            // bool, integer, double or string
  std::vector<Node> items;      // of an array
  std::vector<Member> members;  // of a table, in the order of the file

  bool is_table() const { return kind == Kind::kTable; }
  bool is_array() const { return kind == Kind::kArray; }
  const std::string* string() const { return std::get_if<std::string>(&scalar); }
  const Node* find(std::string_view key) const;  // of a table's members; null if there is none
};

struct Member {
  std::string key;
  Position at;
  Node value;
};

// The error of text that is not TOML: bare message and position.
class TomlError : public ConfigError {
 public:
  TomlError(const std::string& message, Position at) : ConfigError(message), at_(at) {}
  Position at() const { return at_; }

 private:
  Position at_;
};

// Parses the text as a table. Throws TomlError.
Node parse_toml(std::string_view text);

// A standalone TOML file, not a run's configuration, which may include others (toml_files.h).
class Document {
 public:
  // Throws ConfigError for text that is not TOML. `name` stands for the file in messages.
  Document(std::string_view text, std::string name);

  const Node& root() const { return root_; }
  const std::string& name() const { return source_.name(); }

  // "NAME:LINE:COLUMN: error: MESSAGE", the line, and a caret below the column.
  std::string error(Position at, const std::string& message) const { return source_.error(at, message); }

 private:
  Source source_;
  Node root_;
};

// Reads the file. Throws ConfigError if it cannot be read or is not TOML.
Document load_document(const std::filesystem::path& path);

// "the integer 3", "a list with a number in it", for messages.
std::string describe_found(const Node& node);

// Converts the node to a value of the field; nullopt if the type is wrong. An integer is accepted for a number
// that holds it exactly, and the string "None" unsets an optional key. Does not check the field's rule.
std::optional<FieldValue> to_field_value(const Field& field, const Node& node);

// Returns the message of a wrong type, with the fix if there is an obvious one: "KEY: expected an
// integer, at least 1; found the string "3"; write 3".
std::string wrong_type(const Field& field, const Node& node);

}  // namespace titan::config
