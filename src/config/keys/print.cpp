#include "config/keys/print.h"

#include "config/keys/fields.h"

namespace titan::config {
namespace {

constexpr std::size_t kOriginColumn = 44;

std::string toml_line(const Field& field, const FieldValue& value) {
  if (!std::holds_alternative<None>(value)) return last_part_of(field) + " = " + to_toml_value(value);
  if (std::holds_alternative<None>(default_value(field))) return "# " + last_part_of(field) + " is not set";
  return last_part_of(field) + " = \"None\"";
}

std::string with_origin(std::string line, const Field& field, const Origins& origins) {
  const auto it = origins.find(field.key);
  line += std::string(line.size() < kOriginColumn ? kOriginColumn - line.size() : 1, ' ');
  return line + "# " + (it == origins.end() ? "default" : it->second.place());
}

bool is_changed(const Field& field, const JobConfig& config) {
  return field.key != "job.config_file" && field.get(config) != default_value(field);
}

std::string print(const JobConfig& config, const Origins* origins, bool only_changed = false) {
  std::string out, table;
  for (const Field& field : fields()) {
    if (only_changed && !is_changed(field, config)) continue;
    if (table_of(field) != table) {
      table = table_of(field);
      out += (out.empty() ? "[" : "\n[") + table + "]\n";
    }
    const std::string line = toml_line(field, field.get(config));
    out += (origins ? with_origin(line, field, *origins) : line) + "\n";
  }
  return out;
}

}  // namespace

std::string to_toml(const JobConfig& config) { return print(config, nullptr); }
std::string to_toml(const JobConfig& config, const Origins& origins) { return print(config, &origins); }
std::string changed_to_toml(const JobConfig& config) { return print(config, nullptr, /*only_changed=*/true); }

}  // namespace titan::config
