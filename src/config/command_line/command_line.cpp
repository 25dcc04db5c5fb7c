// Parses the command line with CLI11. CLI11 reads positions instead of arguments: "--job.dump-folder=x" at position 4
// becomes "--job.dump_folder=4", and "x" at position 4 becomes "4". CLI11 then accepts values that are empty or begin
// with '-', does not stop at the first error, and messages can quote what was typed. Texts are converted to values
// afterwards, in the order of the command line.
#include "config/command_line/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "config/command_line/complete.h"
#include "config/command_line/modes.h"
#include "config/command_line/program.h"
#include "config/keys/largest_sizes.h"
#include "config/keys/renamed.h"
#include "config/keys/suggest.h"

namespace titan::config {
namespace {

struct Switch {
  const char* name;
  bool CommandLine::*member;
};
constexpr std::array<Switch, 7> kSwitches = {{{"dry_run", &CommandLine::dry_run},
                                              {"json", &CommandLine::json},
                                              {"no_preflight", &CommandLine::no_preflight},
                                              {"oversubscribe", &CommandLine::oversubscribe},
                                              {"overwrite", &CommandLine::overwrite},
                                              {"print_docs", &CommandLine::print_docs},
                                              {"version", &CommandLine::version}}};

struct Count {
  const char* name;
  std::optional<std::int64_t> CommandLine::*member;
  std::int64_t least = 1;
  std::int64_t most = INT64_MAX;
};
constexpr std::array<Count, 4> kCounts = {{{"nproc", &CommandLine::nproc},
                                           {"max_restarts", &CommandLine::max_restarts, 0},
                                           {"min_nproc", &CommandLine::min_nproc},
                                           {"world_size", &CommandLine::world_size, 1, kLargestWorld}}};

constexpr const char* kConfigFileKey = "job.config_file";  // a field, but it chooses the file to load

struct ShortFlag {
  std::string_view flag;
  const char* name;
};
constexpr std::array<ShortFlag, 3> kShortFlags = {{{"-c", "config"}, {"-h", "help"}, {"-V", "version"}}};

const ShortFlag* find_short_flag(std::string_view arg) {
  const auto it = std::ranges::find(kShortFlags, arg, &ShortFlag::flag);
  return it == kShortFlags.end() ? nullptr : &*it;
}

// Flags of other tools, and the modes that do the same here.
struct OtherFlag {
  std::string_view name;
  std::string_view mode;
};
constexpr std::array<OtherFlag, 11> kOtherFlags = {{{"check", "--dry-run"},
                                                    {"check_config", "--dry-run"},
                                                    {"plan", "--dry-run"},
                                                    {"validate", "--dry-run"},
                                                    {"force", "--overwrite"},
                                                    {"gpus", "--nproc"},
                                                    {"num_gpus", "--nproc"},
                                                    {"num_processes", "--nproc"},
                                                    {"ngpu", "--nproc"},
                                                    {"nproc_per_node", "--nproc"},
                                                    {"local_ranks_filter", "--log-rank"}}};

bool is_flag(std::string_view arg) { return arg.starts_with("--") || find_short_flag(arg.substr(0, arg.find('='))); }

// Returns the flag as typed, up to the '='.
std::string flag_of(const std::string& arg) { return arg.substr(0, arg.find('=')); }

bool has_inline_value(const std::string& arg) { return arg.find('=') != std::string::npos; }

// Returns the name that a flag means: "--Some-name=5" -> "Some_name".
std::string name_of(const std::string& arg) {
  if (const ShortFlag* flag = find_short_flag(flag_of(arg))) return flag->name;
  std::string name = flag_of(arg).substr(2);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// "checkpoint.enable" -> "checkpoint.no_enable"
std::string negation_of(const std::string& key) {
  const auto begin = key.rfind('.') + 1;
  return key.substr(0, begin) + "no_" + key.substr(begin);
}

bool is_bool_key(std::string_view name) {
  const Field* field = find_field(name);
  return field && field->kind == ValueKind::kBool;
}

std::string hint_for_flag(const std::string& name) {
  if (const auto renamed = renamed_hint(name)) return ": " + *renamed;
  if (const auto other = std::ranges::find(kOtherFlags, name, &OtherFlag::name); other != kOtherFlags.end())
    return did_you_mean(StringList{std::string(other->mode)});
  if (const std::string key = name.starts_with("no_") ? name.substr(3) : ""; is_bool_key(key))
    return "; did you mean " + negated_flag("--" + key) + "?";
  const StringList likely = likely_keys(name);
  // If the name is a key's last part, that key is meant. A name that is only similar may also be a mode.
  const bool is_exact = !likely.empty() && likely.front().ends_with("." + name.substr(name.rfind('.') + 1));
  StringList mode_names;
  for (const Mode& mode : modes()) mode_names.push_back(typed_name(mode));
  if (const auto mode = nearest_name(name, mode_names); mode && !is_exact) return did_you_mean(StringList{*mode}, "--");
  return likely.empty() ? "; --help lists all" : did_you_mean(likely, "--");
}

// Returns a hint for a word that is neither a flag nor the value of one.
std::string hint_for_word(const std::string& word, bool is_first) {
  if (word.ends_with(".toml") && !has_inline_value(word)) return "; a configuration file is given by --config " + word;
  const std::string name = name_of("--" + word);
  if (find_field(name)) return "; did you mean --" + word + (has_inline_value(word) ? "?" : " VALUE?");
  if (has_inline_value(word))
    if (const StringList likely = likely_keys(name); !likely.empty())
      return did_you_mean(StringList{likely.front() + word.substr(word.find('='))}, "--");
  if (word == "-v") return "; did you mean -V, for --version?";
  if (is_first && (word == "train" || word == "run")) return "; to train: titan-train --config FILE";
  if (is_first && !word.starts_with('-')) {
    const auto near = nearest_name(word, command_names());
    return near ? "; did you mean titan-train " + *near + "?" : "; the commands are " + join(command_names(), ", ");
  }
  return "; a value follows its flag: --section.key VALUE, and commas separate the values of a list: A,B";
}

class Parser {
 public:
  explicit Parser(std::span<const std::string> args) : args_(args), known_by_arg_(args.size()), is_value_(args.size()) {
    app_.allow_extras();
    app_.set_help_flag();  // --help is added as a mode: CLI11's own would end the parse
    add_modes();
    add_fields();
  }

  CommandLine run() {
    app_.parse(tokens());
    collect();
    for (std::size_t i = 0; i < args_.size(); ++i) {
      if (is_value_[i]) continue;
      if (known_by_arg_[i]) {
        known_by_arg_[i]->read(i);
      } else if (is_flag(args_[i]) && args_[i] != "--") {
        unknown(i);
      } else {
        stray(i);
      }
    }
    if (line_.oversubscribe && !line_.nproc)
      error("--oversubscribe goes with --nproc N: it lets that start more ranks than this machine is good for");
    if (line_.max_restarts && !line_.nproc)
      error(
          "--max-restarts goes with --nproc N; for another launcher: titan-train supervise --max-restarts K -- mpirun "
          "...");
    if (line_.min_nproc && line_.max_restarts.value_or(0) == 0)
      error("--min-nproc goes with --max-restarts K: only a restart can have fewer ranks");
    if (line_.device && !line_.dry_run)
      error("--device " + *line_.device + " is for --dry-run; a run takes the device of training.device");
    if (line_.world_size && !line_.dry_run && !line_.print_config)
      error("--world-size " + std::to_string(*line_.world_size) +
            " is for --dry-run and --print-config; ranks are started with --nproc N or by a launcher");
    if (line_.json && !line_.dry_run) error("--json is for --dry-run: it prints that as one JSON object");
    if (line_.overwrite && line_.dry_run) error("--overwrite is for a run; --dry-run writes nothing. Leave one out");
    if (line_.log_ranks && line_.dry_run) error("--log-rank is for a run; --dry-run starts no ranks. Leave one out");
    return std::move(line_);
  }

 private:
  struct Known {
    CLI::Option* option;
    std::function<void(std::size_t)> read;  // takes the flag's position
    bool is_bool_field = false;
  };

  // take_all keeps every occurrence, because each may have an error to report. The last one wins because they are
  // applied in order. The first of the one or two expected values is the flag's own position.
  Known& add(const std::string& names, const std::string& group, const std::string& doc, bool takes_value) {
    CLI::Option* option = app_.add_option(names, CLI::callback_t{}, doc);
    option->expected(1, takes_value ? 2 : 1)->take_all()->group(group);
    return known_.emplace_back(Known{option, {}});
  }

  void add_modes() {
    add(std::string("--config,--") + kConfigFileKey, "Modes", "TOML file", true).read = [this](std::size_t at) {
      read_config_file(at);
    };
    for (const Switch& item : kSwitches)
      add(std::string("--") + item.name, "Modes", "", false).read = [this, &item](std::size_t at) {
        read_switch(item, at);
      };
    for (const Count& item : kCounts)
      add(std::string("--") + item.name, "Modes", "", true).read = [this, &item](std::size_t at) {
        read_count(item, at);
      };
    add("--print_config", "Modes", "", false).read = [this](std::size_t at) { read_print_config(at); };
    add("--help", "Modes", "", true).read = [this](std::size_t at) {
      line_.help = true;
      line_.help_topic = value_of(at);
    };
    add("--log_rank", "Modes", "", true).read = [this](std::size_t at) { read_log_ranks(at); };
    add("--device", "Modes", "", true).read = [this](std::size_t at) {
      line_.device = require_value(at, "a model or an amount of memory");
    };
    add("--completion", "Modes", "", true).read = [this](std::size_t at) { read_completion(at); };
  }

  void add_fields() {
    for (const Field& field : fields()) {
      if (field.key == kConfigFileKey) continue;
      const bool is_bool = field.kind == ValueKind::kBool;
      std::string names = "--" + field.key;
      if (is_bool) names += ",--" + negation_of(field.key);
      Known& known = add(names, table_of(field), field.doc, !is_bool);
      known.is_bool_field = is_bool;
      known.read = [this, &field](std::size_t at) { read_field(field, at); };
    }
  }

  // Returns the input of CLI11, last token first as CLI11 requires.
  std::vector<std::string> tokens() const {
    std::vector<std::string> out;
    for (std::size_t i = args_.size(); i-- > 0;) {
      const std::string position = std::to_string(i);
      if (!is_flag(args_[i])) {
        out.push_back(position);
        continue;
      }
      std::string name = name_of(args_[i]);
      if (name.find_first_of("! \n") == 0) name.insert(0, "_");  // else CLI11 takes it for a value; unknown either way
      out.push_back("--" + name + "=" + position);
    }
    return out;
  }

  // Records which option each flag matched and which arguments are values. All others are extras.
  void collect() {
    for (const Known& known : known_) {
      for (const std::string& result : known.option->results()) {
        const std::size_t at = std::stoul(result);
        if (is_flag(args_[at])) {
          known_by_arg_[at] = &known;
        } else {
          is_value_[at] = !has_inline_value(args_[at - 1]);
        }
      }
    }
  }

  std::optional<std::string> value_of(std::size_t at) const {
    const std::string& arg = args_[at];
    if (has_inline_value(arg)) return arg.substr(arg.find('=') + 1);
    if (at + 1 < args_.size() && is_value_[at + 1]) return args_[at + 1];
    return std::nullopt;
  }

  std::optional<std::string> require_value(std::size_t at, const std::string& expected) {
    auto value = value_of(at);
    if (!value) {
      const bool last = at + 1 == args_.size();
      error(flag_of(args_[at]) + ": expected " + expected + " after it; " +
            (last ? "found the end of the command line" : "found the flag " + args_[at + 1]));
    }
    return value;
  }

  void read_config_file(std::size_t at) {
    const auto file = require_value(at, "a TOML file");
    if (!file) return;
    if (line_.config_file && *line_.config_file != *file) {
      error(flag_of(args_[at]) + " " + *file + ": there is one configuration file already, " + *line_.config_file +
            "; give one");
      return;
    }
    if (find_invalid_utf8(*file)) {
      error(flag_of(args_[at]) + ": expected a path in UTF-8; found \"" + escape_invalid_utf8(*file) +
            "\"; rename the file, or give a path to it that is UTF-8");
      return;
    }
    line_.config_file = *file;
  }

  void read_switch(const Switch& item, std::size_t at) {
    if (const auto value = value_of(at)) {
      error(flag_of(args_[at]) + " takes no value; found \"" + *value + "\"");
      return;
    }
    line_.*item.member = true;
  }

  void read_print_config(std::size_t at) {
    const auto value = value_of(at);
    if (value && *value != "origins" && *value != "changed") {
      error(flag_of(args_[at]) + ": expected nothing after it, =origins or =changed; found \"" + *value + "\"");
      return;
    }
    line_.print_config = true;
    line_.show_origins = line_.show_origins || value == "origins";
    line_.only_changed = line_.only_changed || value == "changed";
  }

  void read_completion(std::size_t at) {
    const auto shell = require_value(at, "bash, zsh or fish");
    if (shell && *shell != "bash" && *shell != "zsh" && *shell != "fish") {
      error(flag_of(args_[at]) + ": expected bash, zsh or fish; found \"" + *shell + "\"");
      return;
    }
    line_.completion = shell;
  }

  void read_count(const Count& item, std::size_t at) {
    const auto text = require_value(at, item.least == 0 ? "a number" : "a number of processes");
    if (!text) return;
    static const Field* const kInteger = find_field("training.steps");
    std::string expected;
    const auto value = parse_text(*kInteger, *text, expected);
    const std::int64_t number = value ? std::get<std::int64_t>(*value) : 0;
    if (!value || number < item.least || number > item.most) {
      error(flag_of(args_[at]) + ": expected an integer, at least " + std::to_string(item.least) +
            (item.most == INT64_MAX ? "" : " and at most " + std::to_string(item.most)) + "; found \"" + *text + "\"");
      return;
    }
    line_.*item.member = number;
  }

  void read_log_ranks(std::size_t at) {
    const auto text = require_value(at, "ranks");
    if (!text) return;
    try {
      line_.log_ranks = RankList(*text);
    } catch (const ConfigError& wrong) {
      error(flag_of(args_[at]) + ": " + wrong.what());
    }
  }

  void read_field(const Field& field, std::size_t at) {
    const bool is_bool = field.kind == ValueKind::kBool;
    const auto text = is_bool ? value_of(at).value_or("true")
                              : require_value(at, describe_kind(field) + (field.optional ? " or None" : ""));
    if (!text) return;
    const std::string flag = flag_of(args_[at]);
    std::string expected;
    auto value = parse_text(field, *text, expected);
    if (!value) {
      error(flag + ": expected " + expected + "; found \"" + *text + "\"");
      return;
    }
    if (std::holds_alternative<bool>(*value) && name_of(flag) != field.key) value = !std::get<bool>(*value);
    line_.overrides.push_back({field.key, *value, flag});
  }

  void unknown(std::size_t at) {
    error("unknown flag " + flag_of(args_[at]) + hint_for_flag(name_of(args_[at])));
    // Its value, if it has one, is not reported as a second mistake.
    if (!has_inline_value(args_[at]) && at + 1 < args_.size() && !is_flag(args_[at + 1])) is_value_[at + 1] = true;
  }

  void stray(std::size_t at) {
    const std::string& arg = args_[at];
    std::string hint = hint_for_word(arg, at == 0);
    const Known* before = at > 0 ? known_by_arg_[at - 1] : nullptr;
    const bool is_truth = arg == "true" || arg == "false" || arg == "True" || arg == "False";
    if (is_truth && before && before->is_bool_field && !has_inline_value(args_[at - 1]))
      hint = "; did you mean " + args_[at - 1] + "=" + arg + "?";
    error("unexpected argument \"" + arg + "\"" + hint);
  }

  void error(const std::string& text) { line_.errors.push_back("command line: error: " + text); }

  std::span<const std::string> args_;
  CLI::App app_;
  std::vector<Known> known_;
  std::vector<const Known*> known_by_arg_;  // null: a value, a stray argument or an unknown flag
  std::vector<bool> is_value_;
  CommandLine line_;
};

}  // namespace

CommandLine parse_command_line(std::span<const std::string> args) { return Parser(args).run(); }

}  // namespace titan::config
