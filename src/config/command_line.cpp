#include "config/command_line.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"

namespace titan::config {
namespace {

constexpr std::array<const char*, 4> kSwitches = {"dry_run", "print_config", "version", "help"};
constexpr std::array<const char*, 2> kCounts = {"nproc", "world_size"};

std::string with_underscores(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

// "checkpoint.no_enable" -> "checkpoint.enable"; empty for a name without the "no_".
std::string without_negation(const std::string& name) {
  const auto dot = name.rfind('.');
  if (dot == std::string::npos || name.compare(dot + 1, 3, "no_") != 0) return {};
  return name.substr(0, dot + 1) + name.substr(dot + 4);
}

class Parser {
 public:
  explicit Parser(std::span<const std::string> args) : args_(args) {}

  CommandLine run() {
    while (next_ < args_.size()) {
      const std::string& arg = args_[next_++];
      if (arg == "-h") {
        line_.help = true;
      } else if (arg.starts_with("--") && arg.size() > 2) {
        parse_flag(arg);
      } else {
        stray(arg);
      }
    }
    return std::move(line_);
  }

 private:
  void parse_flag(const std::string& arg) {
    const auto equals = arg.find('=');
    flag_ = arg.substr(0, equals);
    inline_value_.reset();
    if (equals != std::string::npos) inline_value_ = arg.substr(equals + 1);
    const std::string name = with_underscores(std::string_view(flag_).substr(2));
    if (name == "config" || name == "job.config_file") return parse_config_file();
    if (std::find(kSwitches.begin(), kSwitches.end(), name) != kSwitches.end()) return parse_switch(name);
    if (std::find(kCounts.begin(), kCounts.end(), name) != kCounts.end()) return parse_count(name);
    if (const Field* field = find_field(name)) return parse_field(*field, false);
    if (const Field* field = find_field(without_negation(name)); field && field->kind == ValueKind::kBool)
      return parse_field(*field, true);
    unknown(name);
  }

  // The value after '=', or the next argument unless that is a flag itself.
  std::optional<std::string> take_value(const std::string& expected) {
    if (inline_value_) return inline_value_;
    if (next_ < args_.size() && !args_[next_].starts_with("--")) return args_[next_++];
    const std::string what =
        next_ < args_.size() ? "found the flag " + args_[next_] : "found the end of the command line";
    line_.errors.push_back("command line: error: " + flag_ + ": expected " + expected + " after it; " + what);
    return std::nullopt;
  }

  void parse_config_file() {
    const auto file = take_value("a TOML file");
    if (!file) return;
    if (line_.config_file && *line_.config_file != *file) {
      line_.errors.push_back("command line: error: " + flag_ + " " + *file +
                             ": there is one configuration file already, " + *line_.config_file + "; give one");
      return;
    }
    line_.config_file = *file;
  }

  void parse_switch(const std::string& name) {
    if (inline_value_) {
      line_.errors.push_back("command line: error: " + flag_ + " takes no value; found \"" + *inline_value_ + "\"");
      return;
    }
    if (name == "dry_run") line_.dry_run = true;
    if (name == "print_config") line_.print_config = true;
    if (name == "version") line_.version = true;
    if (name == "help") line_.help = true;
  }

  void parse_count(const std::string& name) {
    const auto text = take_value("a number of processes");
    if (!text) return;
    static const Field* const kInteger = find_field("training.steps");
    std::string expected;
    const auto value = parse_text(*kInteger, *text, expected);
    if (!value || std::get<std::int64_t>(*value) < 1) {
      line_.errors.push_back("command line: error: " + flag_ + ": expected an integer, at least 1; found \"" + *text +
                             "\"");
      return;
    }
    (name == "nproc" ? line_.nproc : line_.world_size) = std::get<std::int64_t>(*value);
  }

  void parse_field(const Field& field, bool negated) {
    if (field.kind == ValueKind::kBool && !inline_value_ && !field.optional) {
      line_.overrides.push_back({field.key, !negated, flag_});
      return;
    }
    if (field.kind == ValueKind::kBool && !inline_value_)
      inline_value_ = "true";  // an optional boolean may also be =None
    const auto text = take_value(describe_kind(field));
    if (!text) return;
    std::string expected;
    auto value = parse_text(field, *text, expected);
    if (!value) {
      line_.errors.push_back("command line: error: " + flag_ + ": expected " + expected + "; found \"" + *text + "\"");
      return;
    }
    if (negated && std::holds_alternative<bool>(*value)) value = !std::get<bool>(*value);
    line_.overrides.push_back({field.key, *value, flag_});
  }

  void unknown(const std::string& name) {
    StringList names = field_names();
    names.insert(names.end(), kSwitches.begin(), kSwitches.end());
    names.insert(names.end(), kCounts.begin(), kCounts.end());
    names.push_back("config");
    const auto near = nearest_name(name, names);
    line_.errors.push_back("command line: error: unknown flag " + flag_ +
                           (near ? "; did you mean --" + *near + "?" : "; --help lists all"));
    // Its value, if it has one, is no mistake of its own.
    if (!inline_value_ && next_ < args_.size() && !args_[next_].starts_with("--")) ++next_;
  }

  void stray(const std::string& arg) {
    std::string hint = "; a value follows its flag: --section.key VALUE";
    if (arg.ends_with(".toml")) hint = "; a configuration file is given by --config " + arg;
    const bool after_flag = next_ >= 2 && args_[next_ - 2] == flag_;
    if ((arg == "true" || arg == "false") && after_flag) hint = "; did you mean " + flag_ + "=" + arg + "?";
    line_.errors.push_back("command line: error: unexpected argument \"" + arg + "\"" + hint);
  }

  std::span<const std::string> args_;
  std::size_t next_ = 0;
  std::string flag_;  // the last one seen, as typed
  std::optional<std::string> inline_value_;
  CommandLine line_;
};

}  // namespace

CommandLine parse_command_line(std::span<const std::string> args) { return Parser(args).run(); }

void throw_if_wrong(const std::vector<std::string>& errors) {
  if (errors.empty()) return;
  const std::string count = errors.size() > 1 ? "\n" + std::to_string(errors.size()) + " errors" : "";
  throw ConfigError(join(errors, "\n") + count);
}

}  // namespace titan::config
