#include "config/load.h"

#include <toml++/toml.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/fs.h"
#include "base/text.h"
#include "config/validate.h"

namespace titan::config {
namespace {

// A file's text, and messages that point into it. Columns count characters, not bytes, as toml++ does.
class Source {
 public:
  Source(std::string name, std::string_view text) : name_(std::move(name)), lines_(split(text, '\n')) {}

  std::string error(const toml::source_position& at, const std::string& message) const {
    const std::string line_number = std::to_string(at.line);
    std::string out = name_ + ":" + line_number + ":" + std::to_string(at.column) + ": error: " + message;
    if (at.line == 0 || at.line > lines_.size()) return out;
    std::string line = lines_[at.line - 1];
    if (line.ends_with('\r')) line.pop_back();
    const std::string gutter(std::max<std::size_t>(line_number.size(), 4), ' ');
    out += "\n" + std::string(gutter.size() - line_number.size(), ' ') + line_number + " | " + line;
    out += "\n" + gutter + " | ";
    for (std::size_t i = 0, column = 1; i < line.size() && column < at.column; ++i) {
      if ((static_cast<unsigned char>(line[i]) & 0xC0) == 0x80) continue;  // inside a character
      out += line[i] == '\t' ? '\t' : ' ';
      ++column;
    }
    return out + "^";
  }

 private:
  std::string name_;
  std::vector<std::string> lines_;
};

// The last value given to a key, and how to complain about it.
struct Assignment {
  FieldValue value;
  toml::source_position at;  // in the file; line 0: on the command line
  std::string flag;
};

std::string describe_found(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "the string " + to_toml_value(FieldValue(node.ref<std::string>()));
    case toml::node_type::integer:
      return "the integer " + std::to_string(node.ref<std::int64_t>());
    case toml::node_type::floating_point:
      return "the number " + to_toml_value(FieldValue(node.ref<double>()));
    case toml::node_type::boolean:
      return node.ref<bool>() ? "true" : "false";
    default:
      return "a date or time";
  }
}

std::optional<StringList> to_strings(const toml::node& node) {
  const toml::array* array = node.as_array();
  if (!array) return std::nullopt;
  StringList out;
  for (const toml::node& item : *array) {
    if (!item.is_string()) return std::nullopt;
    out.push_back(item.ref<std::string>());
  }
  return out;
}

std::optional<StringLists> to_string_lists(const toml::node& node) {
  const toml::array* array = node.as_array();
  if (!array) return std::nullopt;
  StringLists out;
  for (const toml::node& item : *array) {
    auto list = to_strings(item);
    if (!list) return std::nullopt;
    out.push_back(std::move(*list));
  }
  return out;
}

template <class T>
std::optional<FieldValue> as_value(const std::optional<T>& value) {
  return value ? std::optional<FieldValue>(*value) : std::nullopt;
}

std::optional<FieldValue> to_field_value(const Field& field, const toml::node& node) {
  if (field.optional && node.is_string() && node.ref<std::string>() == "None") return None{};
  switch (field.kind) {
    case ValueKind::kBool:
      return node.is_boolean() ? as_value(node.value_exact<bool>()) : std::nullopt;
    case ValueKind::kInt:
      return node.is_integer() ? as_value(node.value_exact<std::int64_t>()) : std::nullopt;
    case ValueKind::kFloat:
      return node.is_number() ? as_value(node.value<double>()) : std::nullopt;
    case ValueKind::kString:
      return node.is_string() ? as_value(node.value_exact<std::string>()) : std::nullopt;
    case ValueKind::kStringList:
      return as_value(to_strings(node));
    case ValueKind::kStringLists:
      return as_value(to_string_lists(node));
  }
  return std::nullopt;
}

// "; write [\"a\", \"b\"]" where the mistake has one obvious cure.
std::string cure(const Field& field, const toml::node& node) {
  if (field.kind == ValueKind::kStringList && node.is_string())
    return "; write " + to_toml_value(FieldValue(split(node.ref<std::string>(), ',')));
  if (field.kind == ValueKind::kString && node.is_integer())
    return "; write \"" + std::to_string(node.ref<std::int64_t>()) + "\"";
  return {};
}

class Loader {
 public:
  explicit Loader(const CommandLine& command_line) : command_line_(command_line), errors_(command_line.errors) {}

  void read(std::string_view text, const std::string& name) {
    source_.emplace(name, text);
    try {
      const toml::table table = toml::parse(text, name);
      walk(table, "");
    } catch (const toml::parse_error& error) {
      file_error(error.source().begin, std::string(error.description()));
    }
  }

  LoadedConfig finish() {
    for (const Override& given : command_line_.overrides) assigned_[given.key] = {given.value, {}, given.flag};
    LoadedConfig out;
    for (const Field& field : fields()) {
      const auto it = assigned_.find(field.key);
      if (it != assigned_.end()) apply(field, it->second, out);
    }
    if (command_line_.config_file) out.config.job.config_file = command_line_.config_file;
    throw_if_wrong(all_errors());
    if (out.config.model.tokenizer_path) {
      out.config.model.hf_assets_path = *out.config.model.tokenizer_path;
      out.warnings.push_back("model.tokenizer_path is deprecated; call it model.hf_assets_path");
    }
    for (auto& warning : validate(out.config)) out.warnings.push_back(std::move(warning));
    return out;
  }

  void fail(const std::string& message) { errors_.push_back(message); }

 private:
  void file_error(const toml::source_position& at, const std::string& message) {
    file_errors_.emplace(std::pair(at.line, at.column), source_->error(at, message));
  }

  // The file's from top to bottom, then the others.
  std::vector<std::string> all_errors() const {
    std::vector<std::string> all;
    for (const auto& [at, message] : file_errors_) all.push_back(message);
    all.insert(all.end(), errors_.begin(), errors_.end());
    return all;
  }

  void walk(const toml::table& table, const std::string& prefix) {
    for (const auto& [toml_key, node] : table) {
      const std::string key = prefix + std::string(toml_key.str());
      if (const Field* field = find_field(key)) {
        assign(*field, node);
      } else if (!is_table(key)) {
        unknown(key, prefix, toml_key.source().begin, node.is_table());
      } else if (const toml::table* inner = node.as_table()) {
        walk(*inner, key + ".");
      } else {
        file_error(node.source().begin, key + ": expected a table, [" + key + "]; found " + describe_found(node));
      }
    }
  }

  void assign(const Field& field, const toml::node& node) {
    const auto value = to_field_value(field, node);
    if (value) {
      assigned_[field.key] = {*value, node.source().begin, {}};
      return;
    }
    const std::string rule = describe_rule(field.rule);
    file_error(node.source().begin, field.key + ": expected " + describe_kind(field) +
                                        (rule.empty() ? "" : ", " + rule) + "; found " + describe_found(node) +
                                        cure(field, node));
  }

  void unknown(const std::string& key, const std::string& prefix, const toml::source_position& at, bool table) {
    // Keys of the same table first: a typo is likelier than a wrong table. The full names serve a key in the wrong
    // place.
    std::vector<std::string> here;
    for (const Field& field : fields()) {
      if (!field.key.starts_with(prefix)) continue;
      const auto dot = field.key.find('.', prefix.size());
      if (table == (dot != std::string::npos)) here.push_back(field.key.substr(0, dot));
    }
    const std::string last = key.substr(prefix.size());
    std::optional<std::string> near;
    std::vector<std::string> short_names;
    for (const auto& name : here) short_names.push_back(name.substr(prefix.size()));
    if (const auto match = nearest_name(last, short_names)) near = prefix + *match;
    for (const Field& field : fields())
      if (!near && field.key.substr(field.key.rfind('.') + 1) == last) near = field.key;
    const std::string what = table ? "unknown table [" + key + "]" : "unknown key " + key;
    const std::string hint = !near   ? "; --help lists all keys"
                             : table ? "; did you mean [" + *near + "]?"
                                     : "; did you mean " + *near + "?";
    file_error(at, what + hint);
  }

  void apply(const Field& field, const Assignment& given, LoadedConfig& out) {
    if (const auto fault = find_fault(field, given.value)) {
      if (given.flag.empty()) file_error(given.at, *fault);
      if (!given.flag.empty()) errors_.push_back("command line: error: " + given.flag + ": " + *fault);
      return;
    }
    field.set(out.config, given.value);
    if (field.status.support == Support::kNoEffect && given.value != default_value(field))
      out.warnings.push_back(field.key + " = " + to_toml_value(given.value) +
                             " changes nothing here: " + field.status.reason);
  }

  const CommandLine& command_line_;
  std::vector<std::string> errors_;
  std::multimap<std::pair<toml::source_index, toml::source_index>, std::string> file_errors_;
  std::optional<Source> source_;
  std::map<std::string, Assignment> assigned_;
};

}  // namespace

LoadedConfig load_job_config(const CommandLine& command_line) {
  Loader loader(command_line);
  if (command_line.config_file) {
    try {
      loader.read(read_file(*command_line.config_file), *command_line.config_file);
    } catch (const DataError& error) {
      loader.fail("error: cannot read the configuration file: " + std::string(error.what()) +
                  "; relative paths start at the current directory");
    }
  }
  return loader.finish();
}

LoadedConfig load_job_config_text(std::string_view toml_text, const std::string& name,
                                  const CommandLine& command_line) {
  Loader loader(command_line);
  loader.read(toml_text, name);
  return loader.finish();
}

}  // namespace titan::config
