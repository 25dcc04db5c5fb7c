#include "lab/sweep/plan/grid_words.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/keys/fields.h"
#include "config/keys/source.h"
#include "config/keys/suggest.h"
#include "lab/sweep/plan/plan.h"

namespace titan::sweep {
namespace {

namespace fs = std::filesystem;

std::string toml_text(const std::string& text) { return to_toml_value(config::FieldValue(text)); }

// Turns "optimizer.lr=1e-3,1e-2" into `"optimizer.lr" = [0.001, 0.01]`.
class AxisReader {
 public:
  void read(const std::string& word) {
    const auto equals = word.find('=');
    std::string key = word.substr(0, equals);
    std::ranges::replace(key, '-', '_');
    const auto* field = config::find_field(key);
    if (!field) return fail(word, "unknown key " + key + config::did_you_mean(config::likely_keys(key)));
    if (equals == std::string::npos) return fail(word, "expected " + key + "=VALUE,VALUE,...");
    if (std::ranges::count(keys, key) > 0) return fail(word, key + " is given before; give all its values at once");
    if (field->kind == config::ValueKind::kStringList || field->kind == config::ValueKind::kStringLists)
      return fail(word, key + " is a list itself; vary it in a sweep's file (docs/sweeps.md)");
    std::vector<std::string> values;
    for (const std::string& text : split(word.substr(equals + 1), ',')) values.push_back(value_of(*field, word, text));
    keys.push_back(key);
    lines += toml_text(key) + " = [" + join(values, ", ") + "]\n";
  }

  std::vector<std::string> keys, errors;
  std::string lines;

 private:
  void fail(const std::string& word, const std::string& message) {
    errors.push_back("command line: error: --grid " + word + ": " + message);
  }

  std::string value_of(const config::Field& field, const std::string& word, const std::string& text) {
    std::string expected;
    const auto value = parse_text(field, text, expected);
    if (!value) {
      fail(word, "expected " + expected + "; found \"" + text + "\"");
    } else if (const auto fault = find_fault(field, *value)) {
      fail(word, *fault);
    } else {
      return std::holds_alternative<config::None>(*value) ? toml_text("None") : to_toml_value(*value);
    }
    return {};
  }
};

}  // namespace

SweepFile sweep_file_of(const GridWords& words) {
  AxisReader axes;
  for (const std::string& word : words.grid) axes.read(word);
  std::error_code error;
  if (!fs::is_regular_file(words.config, error))
    axes.errors.push_back("command line: error: --config " + words.config + ": no such file (looked from " +
                          fs::current_path().string() + ")");
  config::throw_if_wrong(axes.errors);
  const std::string name = fs::path(words.config).stem().string() + "-" + join(short_keys(axes.keys), "-");
  const fs::path folder =
      fs::absolute(words.folder.empty() ? "outputs/sweeps/" + name : words.folder).lexically_normal();
  std::string text = "# Made by titan-train sweep --grid; titan-train sweep takes this file, too.\n[sweep]\nname = " +
                     toml_text(name) + "\nbase = " + toml_text(fs::absolute(words.config).lexically_normal().string()) +
                     "\nfolder = " + toml_text(folder.string()) + "\n";
  if (words.nproc) text += "nproc = " + std::to_string(*words.nproc) + "\n";
  if (words.objective) text += "objective = " + toml_text(objective_named(*words.objective).field) + "\n";
  return {folder / "sweep.toml", text + "\n[sweep.grid]\n" + axes.lines};
}

}  // namespace titan::sweep
