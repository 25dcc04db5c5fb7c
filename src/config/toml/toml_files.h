// Reads TOML files and the files they include, as values of known keys.
//
// `include = ["base.toml"]` at the top of a file reads other files first. Files named later
// overwrite their values, and so does the including file. Paths are relative to the including file.
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

// Messages about files, sorted in the order of reading and of lines.
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

// Values of the files. Their types are checked, but not their rules: a value may still be overridden.
struct FileValues {
  std::map<std::string, FileValue> by_key;
  FileErrors errors;
  std::vector<std::string> other_errors;  // of files that cannot be read
  // Keys that have an error, or that a misspelled key probably meant: their values are unknown.
  std::vector<std::string> broken;
};

// Reads a file; "-" is standard input (piped_text.h), whose includes are relative to the current directory.
FileValues read_toml_file(const std::string& path);

// Same from text; `name` stands for the file in messages, and includes are relative to its folder.
FileValues read_toml_text(std::string_view text, const std::string& name);

}  // namespace titan::config
