#include "config/toml/toml_files.h"

#include <toml++/toml.h>

#include <algorithm>

#include "base/error.h"
#include "base/fs.h"
#include "base/text.h"
#include "config/keys/renamed.h"
#include "config/keys/suggest.h"
#include "config/toml/standard_input.h"
#include "config/toml/toml_syntax.h"

namespace titan::config {
namespace {

constexpr std::string_view kInclude = "include";

Position position(const toml::source_position& at) { return {at.line, at.column}; }
Position begin_of(const toml::node& node) { return position(node.source().begin); }

std::string describe_array(const toml::array& array) {
  for (const toml::node& item : array) {
    if (item.is_string()) continue;
    return item.is_integer()          ? "a list with an integer in it"
           : item.is_floating_point() ? "a list with a number in it"
                                      : "a list with other things than strings in it";
  }
  return "a list";
}

std::string describe_found(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return describe_array(*node.as_array());
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
      if (field.rule.or_one_string && node.is_string()) return FieldValue(split(node.ref<std::string>(), ','));
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
  std::string expected;
  if (node.is_string() &&
      (field.kind == ValueKind::kInt || field.kind == ValueKind::kFloat || field.kind == ValueKind::kBool)) {
    const auto value = parse_text(field, node.ref<std::string>(), expected);
    if (value && !std::holds_alternative<None>(*value)) return "; write " + to_toml_value(*value);
  }
  return {};
}

class Reader {
 public:
  void read_file(const std::string& path) {
    std::string text;
    try {
      text = path == kStandardInput ? read_standard_input() : titan::read_file(path);
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
      const toml::table table = toml::parse(text, name);
      if (const toml::node* include = table.get(kInclude)) read_includes(source, *include);
      source_ = source;
      walk(table, "");
    } catch (const toml::parse_error& error) {
      const Position at = position(error.source().begin);
      out_.errors.add(*source, at, syntax_message(error.description(), text, at));
    }
    open_.pop_back();
  }

  FileValues take() { return std::move(out_); }

 private:
  void read_includes(const std::shared_ptr<const Source>& source, const toml::node& node) {
    const toml::array* array = node.as_array();
    if (!array) {
      const std::string fix =
          node.is_string() ? "; write [" + to_toml_value(FieldValue(node.ref<std::string>())) + "]" : "";
      out_.errors.add(*source, begin_of(node),
                      "include: expected a list of TOML files; found " + describe_found(node) + fix);
      return;
    }
    for (const toml::node& item : *array) {
      if (item.is_string()) {
        read_included(*source, begin_of(item), item.ref<std::string>());
      } else {
        out_.errors.add(*source, begin_of(item), "include: expected a file name; found " + describe_found(item));
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

  void walk(const toml::table& table, const std::string& prefix) {
    for (const auto& [toml_key, node] : table) {
      const std::string key = prefix + std::string(toml_key.str());
      if (key == kInclude) continue;
      if (const Field* field = find_field(key)) {
        assign(*field, node);
      } else if (!is_table(key)) {
        unknown(key, prefix, position(toml_key.source().begin), node.is_table());
      } else if (const toml::table* inner = node.as_table()) {
        walk(*inner, key + ".");
      } else {
        error(begin_of(node), key + ": expected a table, [" + key + "]; found " + describe_found(node));
      }
    }
  }

  void assign(const Field& field, const toml::node& node) {
    if (const auto value = to_field_value(field, node)) {
      out_.by_key[field.key] = {*value, {source_, begin_of(node), {}, {}}};
      return;
    }
    out_.broken.push_back(field.key);
    const std::string rule = describe_rule(field.rule);
    error(begin_of(node), field.key + ": expected " + describe_kind(field) + (rule.empty() ? "" : ", " + rule) +
                              "; found " + describe_found(node) + cure(field, node));
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
    // Keys of the same table first: a typo is likelier than a wrong table.
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
