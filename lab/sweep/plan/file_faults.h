// Collects all errors of a sweep's file, in the order of the file.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/keys/source.h"
#include "config/toml/document.h"

namespace titan::sweep {

class FileFaults {
 public:
  explicit FileFaults(config::Document document) : document_(std::move(document)) {}

  const config::Document& document() const { return document_; }
  bool empty() const { return messages_.empty(); }

  void add(const config::Position& at, const std::string& message) {
    messages_.emplace(at, document_.error(at, message));
  }

  // "sweep.KEY: expected WHAT; found the integer 3"
  void add_wrong(const std::string& key, const config::Node& node, const std::string& expected) {
    add(node.at, "sweep." + key + ": expected " + expected + "; found " + describe_found(node));
  }

  // Throws ConfigError with all faults.
  void throw_if_any() const {
    std::vector<std::string> out;
    for (const auto& [at, message] : messages_) out.push_back(message);
    config::throw_if_wrong(out);
  }

 private:
  config::Document document_;
  std::multimap<config::Position, std::string> messages_;
};

}  // namespace titan::sweep
