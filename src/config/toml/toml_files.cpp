#include "config/toml/toml_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/fs.h"
#include "base/text.h"
#include "config/keys/renamed.h"
#include "config/keys/suggest.h"
#include "config/toml/document.h"
#include "config/toml/piped_text.h"

namespace titan::config {
namespace {

constexpr std::string_view kInclude = "include";

class Reader {
 public:
  void read_file(const std::string& path) {
    std::string text;
    try {
      const auto fd = descriptor_of(path);
      text = fd ? read_descriptor(*fd, path) : titan::read_file(path);
    } catch (const ConfigError& error) {
      out_.other_errors.emplace_back(error.what());
      return;
    } catch (const DataError& error) {
      out_.other_errors.push_back("error: cannot read the configuration file: " + std::string(error.what()) +
                                  "; relative paths start at the current directory");
      return;
    }
    read_text(text, path == kStandardInput ? "<stdin>" : path);
  }

  void read_text(std::string_view text, const std::string& name) {
    const auto source = std::make_shared<const Source>(name, text, order_++);
    open_.push_back(name);
    try {
      const Node root = parse_toml(text);
      if (const Node* include = root.find(kInclude)) read_includes(source, *include);
      source_ = source;
      walk(root, "");
    } catch (const TomlError& error) {
      out_.errors.add(*source, error.at(), error.what());
    }
    open_.pop_back();
  }

  FileValues take() { return std::move(out_); }

 private:
  void read_includes(const std::shared_ptr<const Source>& source, const Node& node) {
    if (!node.is_array()) {
      const std::string hint = node.string() ? "; write [" + to_toml_value(node.scalar) + "]" : "";
      out_.errors.add(*source, node.at, "include: expected a list of TOML files; found " + describe_found(node) + hint);
      return;
    }
    for (const Node& item : node.items) {
      if (item.string()) {
        read_included(*source, item.at, *item.string());
      } else {
        out_.errors.add(*source, item.at, "include: expected a file name; found " + describe_found(item));
      }
    }
  }

  void read_included(const Source& source, Position at, const std::string& name) {
    const std::string path = (std::filesystem::path(source.name()).parent_path() / name).lexically_normal().string();
    const auto same = [&](const std::string& open) { return is_same_file(open, path); };
    if (const auto first = std::ranges::find_if(open_, same); first != open_.end()) {
      const std::vector<std::string> chain(first, open_.end());
      out_.errors.add(source, at,
                      "include: a circle: " + join(chain, " -> ") + " -> " + path + "; take one of them out");
      return;
    }
    std::string text;
    try {
      text = titan::read_file(path);
    } catch (const DataError& error) {
      out_.errors.add(source, at,
                      "include: " + std::string(error.what()) + "; paths are relative to the including file" +
                          (open_.size() > 1 ? " (" + join(open_, " -> ") + " -> " + path + ")" : ""));
      return;
    }
    read_text(text, path);
  }

  static bool is_same_file(const std::string& a, const std::string& b) {
    std::error_code error;
    return std::filesystem::equivalent(a, b, error) ||
           std::filesystem::path(a).lexically_normal() == std::filesystem::path(b).lexically_normal();
  }

  void error(Position at, const std::string& message) { out_.errors.add(*source_, at, message); }

  void walk(const Node& table, const std::string& prefix) {
    for (const auto& [name, at, node] : table.members) {
      const std::string key = prefix + name;
      if (key == kInclude) continue;
      if (const Field* field = find_field(key)) {
        assign(*field, node);
      } else if (!is_table(key)) {
        unknown(key, prefix, at, node.is_table());
      } else if (node.is_table()) {
        walk(node, key + ".");
      } else {
        error(node.at, key + ": expected a table, [" + key + "]; found " + describe_found(node));
      }
    }
  }

  void assign(const Field& field, const Node& node) {
    if (const auto value = to_field_value(field, node)) {
      out_.by_key[field.key] = {*value, {source_, node.at, {}, {}}};
      return;
    }
    out_.broken.push_back(field.key);
    error(node.at, wrong_type(field, node));
  }

  void unknown(const std::string& key, const std::string& prefix, Position at, bool table) {
    if (const auto hint = renamed_hint(key)) {
      if (const auto name = new_name(key)) out_.broken.push_back(*name);
      error(at, *hint);
      return;
    }
    const std::string last = key.substr(prefix.size());
    if (last == kInclude) {
      error(at, "include is a key of the whole file: write it above the first [table]");
      return;
    }
    if (table) {
      const auto near = nearest_here(last, prefix, /*table=*/true);
      error(at, "unknown table [" + key + "]" +
                    (near ? did_you_mean(StringList{"[" + *near + "]"}) : "; --help lists all keys"));
      return;
    }
    // Prefer keys of the same table: a typo is likelier than a wrong table.
    const auto here = nearest_here(last, prefix, /*table=*/false);
    const StringList likely = here ? StringList{*here} : likely_keys(key);
    out_.broken.insert(out_.broken.end(), likely.begin(), likely.end());
    error(at, "unknown key " + key + (likely.empty() ? "; --help lists all keys" : did_you_mean(likely)));
  }

  static std::optional<std::string> nearest_here(const std::string& last, const std::string& prefix, bool table) {
    StringList names;
    for (const Field& field : fields()) {
      if (!field.key.starts_with(prefix)) continue;
      const auto dot = field.key.find('.', prefix.size());
      if (table == (dot != std::string::npos)) names.push_back(field.key.substr(prefix.size(), dot - prefix.size()));
    }
    const auto match = nearest_name(last, names);
    return match ? std::optional(prefix + *match) : std::nullopt;
  }

  FileValues out_;
  std::shared_ptr<const Source> source_;  // being walked
  std::vector<std::string> open_;         // the chain of includes down to the file being read
  int order_ = 0;
};

}  // namespace

FileValues read_toml_file(const std::string& path) {
  Reader reader;
  reader.read_file(path);
  return reader.take();
}

FileValues read_toml_text(std::string_view text, const std::string& name) {
  Reader reader;
  reader.read_text(text, name);
  return reader.take();
}

}  // namespace titan::config
