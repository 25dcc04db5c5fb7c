#include "config/load.h"

#include <algorithm>

#include "base/text.h"
#include "config/command_line/program.h"
#include "config/command_line/variables.h"
#include "config/toml/toml_files.h"
#include "config/validate.h"

namespace titan::config {
namespace {

class Loader {
 public:
  Loader(FileValues files, const Environment& environment, const CommandLine& command_line)
      : files_(std::move(files)), errors_(files_.other_errors) {
    for (auto& [key, given] : files_.by_key) values_[key] = std::move(given);
    for (const Override& given : parse_environment(environment, errors_)) set(given, "environment");
    check_variables(environment, errors_, out_.warnings);
    errors_.insert(errors_.end(), command_line.errors.begin(), command_line.errors.end());
    for (const Override& given : command_line.overrides) set(given, "command line");
    if (command_line.config_file) {
      out_.config.job.config_file = command_line.config_file;
      out_.origins["job.config_file"] = Origin{nullptr, {}, "command line", "--config"};
    }
    warn_of_repetitions(command_line);
    is_all_read_ = errors_.empty();
  }

  LoadedConfig finish(std::optional<std::int64_t> world_size) {
    for (const Field& field : fields()) {
      const auto it = values_.find(field.key);
      if (it != values_.end()) apply(field, it->second);
    }
    use_old_tokenizer_path();
    std::vector<Fault> faults = complete_model();
    Findings findings = cross_check(out_.config, world_size);
    findings.errors.insert(findings.errors.begin(), faults.begin(), faults.end());
    if (world_size && program().check_plan && is_model_known(findings.errors))
      program().check_plan(out_.config, findings.errors);
    throw_if_wrong(all_errors(findings.errors));
    for (auto& warning : findings.warnings) out_.warnings.push_back(std::move(warning));
    return std::move(out_);
  }

 private:
  void set(const Override& given, const std::string& where) {
    values_[given.key] = {given.value, Origin{nullptr, {}, where, given.flag}};
  }

  // Returns the errors of the files from top to bottom, then of the environment and command line,
  // then those between keys.
  std::vector<std::string> all_errors(const std::vector<Fault>& conflicts) const {
    std::vector<std::string> all = files_.errors.in_order();
    all.insert(all.end(), errors_.begin(), errors_.end());
    for (const Fault& fault : conflicts) {
      const auto is_broken = [&](const std::string& key) { return std::ranges::count(files_.broken, key) > 0; };
      if (std::ranges::none_of(fault.keys, is_broken)) all.push_back(with_location(fault, out_.origins));
    }
    return all;
  }

  // True if no key of [model] has an error and no flag is misspelled, so that the model is the one that is meant.
  bool is_model_known(const std::vector<Fault>& found) const {
    const auto is_of_model = [](const std::string& key) { return key.starts_with("model."); };
    const auto concerns_model = [&](const Fault& fault) { return std::ranges::any_of(fault.keys, is_of_model); };
    return is_all_read_ && std::ranges::none_of(files_.broken, is_of_model) &&
           std::ranges::none_of(found, concerns_model);
  }

  void apply(const Field& field, const FileValue& given) {
    if (const auto fault = find_fault(field, given.value)) {
      files_.broken.push_back(field.key);
      if (given.origin.source) {
        files_.errors.add(*given.origin.source, given.origin.at, *fault);
      } else {
        const std::string key = field.key + ": ";  // the flag already names it
        errors_.push_back(given.origin.where + ": error: " + given.origin.name + ": " +
                          (fault->starts_with(key) ? fault->substr(key.size()) : *fault));
      }
      return;
    }
    if (field.key == "job.config_file" && out_.config.job.config_file) return;  // --config says which one it is
    field.set(out_.config, given.value);
    out_.origins[field.key] = given.origin;
    if (field.status.support != Support::kNoEffect || given.value == default_value(field)) return;
    if (field.status.is_only_noted)
      out_.notes.push_back(field.key + ": " + field.status.reason);
    else
      out_.warnings.push_back(field.key + " = " + to_toml_value(given.value) +
                              " changes nothing here: " + field.status.reason);
  }

  void use_old_tokenizer_path() {
    Model& model = out_.config.model;
    if (!model.tokenizer_path) return;
    model.hf_assets_path = *model.tokenizer_path;
    out_.origins["model.hf_assets_path"] = out_.origins["model.tokenizer_path"];
    out_.warnings.push_back("model.tokenizer_path is deprecated; call it model.hf_assets_path");
  }

  // Keys that model.from decides come from where it was given.
  std::vector<Fault> complete_model() {
    std::vector<Fault> faults;
    if (!program().complete_model) return faults;
    for (const std::string& key : program().complete_model(out_.config, out_.origins, faults, out_.warnings))
      out_.origins[key] = out_.origins["model.from"];
    return faults;
  }

  // The last of several flags wins, which scripts that append flags rely on; a slip should still be visible.
  void warn_of_repetitions(const CommandLine& command_line) {
    const auto& all = command_line.overrides;
    for (auto later = all.begin(); later != all.end(); ++later) {
      const auto earlier = std::find_if(all.begin(), later, [&](const Override& o) { return o.key == later->key; });
      if (earlier != later && earlier->value != later->value)
        out_.warnings.push_back(later->flag + " is given more than once; " + to_toml_value(later->value) +
                                " replaces " + to_toml_value(earlier->value));
    }
  }

  FileValues files_;
  std::vector<std::string> errors_;
  bool is_all_read_ = false;  // the environment and the command line have no unknown name or unreadable value
  std::map<std::string, FileValue> values_;
  LoadedConfig out_;
};

}  // namespace

LoadedConfig load_job_config(const CommandLine& command_line, std::optional<std::int64_t> world_size) {
  FileValues files = command_line.config_file ? read_toml_file(*command_line.config_file) : FileValues{};
  return Loader(std::move(files), titan_variables(), command_line).finish(world_size);
}

LoadedConfig load_job_config_text(std::string_view toml_text, const std::string& name, const CommandLine& command_line,
                                  const Environment& environment, std::optional<std::int64_t> world_size) {
  return Loader(read_toml_text(toml_text, name), environment, command_line).finish(world_size);
}

}  // namespace titan::config
