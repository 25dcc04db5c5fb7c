// TOML files and the ones that they include, taken apart into values of known keys.
//
// `include = ["base.toml"]` at the top of a file reads other files first: their values are overwritten by those of the
// files named after them, and by the including file's own. Paths are relative to the including file.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "config/keys/fields.h"
#include "config/keys/source.h"

namespace titan::config {

// Messages about files, kept in the order of reading and of lines.
class FileErrors {
 public:
  void add(const Source& source, Position at, const std::string& message) {
    by_place_.emplace(std::tuple(source.order(), at), source.error(at, message));
  }
  std::vector<std::string> in_order() const {
    std::vector<std::string> out;
    for (const auto& [place, message] : by_place_) out.push_back(message);
    return out;
  }

 private:
  std::multimap<std::tuple<int, Position>, std::string> by_place_;
};

struct FileValue {
  FieldValue value;
  Origin origin;
};

// What the files say. Types have been checked, and rules have not been: a value may yet be overridden.
struct FileValues {
  std::map<std::string, FileValue> by_key;
  FileErrors errors;
  std::vector<std::string> other_errors;  // of files that cannot be read
  // Keys that an error is about, or that a misspelled one probably meant: their values are not known.
  std::vector<std::string> broken;
};

// "-" is standard input (standard_input.h), whose includes start at the current directory.
FileValues read_toml_file(const std::string& path);

// The same from text; `name` stands for the file in messages and its folder is where includes are looked for.
FileValues read_toml_text(std::string_view text, const std::string& name);

}  // namespace titan::config
