#include "checkpoint/inspect_print.h"

#include <fnmatch.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "dist/shard_spec.h"

namespace titan::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

const char* const kGroups[] = {"model", "optimizer", "other"};

std::string size_text(std::uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string kind_text(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kDcp:
      return "PyTorch Distributed Checkpoint (DCP)";
    case CheckpointKind::kHuggingFace:
      return "Hugging Face safetensors";
    case CheckpointKind::kTorch:
      return "torch.save, one file";
  }
  return "";
}

const char* state_text(StepInfo::State state) {
  switch (state) {
    case StepInfo::State::kComplete:
      return "complete";
    case StepInfo::State::kIncomplete:
      return "incomplete";
    case StepInfo::State::kDamaged:
      return "damaged";
  }
  return "";
}

// The newest complete step, or -1.
std::int64_t newest(const std::vector<StepInfo>& steps) {
  std::int64_t step = -1;
  for (const StepInfo& each : steps)
    if (each.state == StepInfo::State::kComplete) step = std::max(step, each.step);
  return step;
}

// Columns of equal width; those of `right` are flush right. Two spaces in front of each line.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right) {
  std::vector<std::size_t> widths(right.size(), 0);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t c = 0; c < row.size(); ++c)
      line += right[c] ? fmt::format(" {:>{}}", row[c], widths[c] + (c > 0))
                       : fmt::format(" {:<{}}", row[c], widths[c] + 1);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string shape_cell(const KeyInfo& key) { return key.is_value ? "" : dist::shape_text(key.shape); }

std::vector<std::string> key_row(const std::string& name, const KeyInfo& key, std::size_t count) {
  return {name, key.is_value ? "value" : key.dtype, shape_cell(key),
          key.is_value ? "" : std::to_string(key.shards) + (key.shards == 1 ? " box" : " boxes"),
          (count > 1 ? std::to_string(count) + " x " : "") + size_text(key.bytes)};
}

const std::vector<bool> kKeyColumns = {false, false, false, true, true};

// "layers.{}.attention.wq.weight" and the number that was there, or the name and nothing.
std::pair<std::string, std::optional<std::int64_t>> without_number(const std::string& name) {
  std::string result;
  std::optional<std::int64_t> number;
  for (const std::string& part : split(name, '.')) {
    const bool digits =
        !number && !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    if (digits) number = std::stoll(part);
    result += (result.empty() ? "" : ".") + (digits ? "{}" : part);
  }
  return {number ? result : name, number};
}

struct Folded {
  std::string pattern;
  const KeyInfo* key;
  std::vector<std::int64_t> numbers;
};

// Keys of one group that are alike but for one number, at the place of the first.
std::vector<Folded> fold(const std::vector<KeyInfo>& keys, const std::string& group) {
  std::vector<Folded> lines;
  std::map<std::string, std::size_t> index;
  for (const KeyInfo& key : keys) {
    if (key.group != group) continue;
    const auto [pattern, number] = without_number(key.name);
    const std::string like = pattern + " " + key.dtype + shape_cell(key) + " " + std::to_string(key.shards) + " " +
                             std::to_string(key.is_value ? 0 : key.bytes);
    const auto [found, is_new] = index.emplace(like, lines.size());
    if (is_new) lines.push_back({pattern, &key, {}});
    if (number) lines[found->second].numbers.push_back(*number);
  }
  return lines;
}

// "3", "0-31" or "0-3,7"
std::string ranges(std::vector<std::int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (j > i) text.append("-").append(std::to_string(numbers[j]));
    i = j + 1;
  }
  return text;
}

std::string folded_keys(const std::vector<KeyInfo>& keys) {
  std::vector<std::vector<std::string>> rows;
  for (const char* group : kGroups) {
    for (const Folded& line : fold(keys, group)) {
      std::string name = line.key->name;
      if (line.numbers.size() > 1) {
        name = line.pattern;
        name.replace(name.find("{}"), 2, "{" + ranges(line.numbers) + "}");
      }
      rows.push_back(key_row(name, *line.key, std::max<std::size_t>(line.numbers.size(), 1)));
    }
  }
  return table(rows, kKeyColumns);
}

std::string head(const Inspection& in) {
  std::vector<std::vector<std::string>> rows = {{"format", kind_text(in.kind)}};
  if (in.kind == CheckpointKind::kDcp) {
    rows.push_back({"step", in.step ? std::to_string(*in.step) : "none: it holds the model only"});
    if (in.tokens_seen) rows.push_back({"tokens seen", with_thousands(*in.tokens_seen)});
    if (!in.save_id.empty()) rows.push_back({"save id", in.save_id});
  }
  if (in.kind != CheckpointKind::kTorch)
    rows.push_back({"checksums", in.has_checksums ? "of all files" : "none beside those of its records"});
  if (in.kind == CheckpointKind::kHuggingFace && !in.has_checksums) rows.back()[1] = "none";
  return in.path.string() + "\n" + table(rows, {false, false});
}

std::string sums(const std::vector<KeyInfo>& keys) {
  std::vector<std::vector<std::string>> rows;
  std::uint64_t all_bytes = 0;
  for (const char* group : kGroups) {
    std::int64_t tensors = 0, values = 0;
    std::uint64_t bytes = 0;
    for (const KeyInfo& key : keys) {
      if (key.group != group) continue;
      ++(key.is_value ? values : tensors);
      bytes += key.bytes;
    }
    all_bytes += bytes;
    if (tensors + values > 0)
      rows.push_back(
          {group, with_thousands(tensors) + " tensors", with_thousands(values) + " values", size_text(bytes)});
  }
  rows.push_back({"all", with_thousands(static_cast<std::int64_t>(keys.size())) + " keys", "", size_text(all_bytes)});
  return table(rows, {false, true, true, true});
}

Json key_json(const KeyInfo& key) {
  Json json = {{"name", key.name}, {"group", key.group}, {"type", key.is_value ? "value" : "tensor"}};
  if (!key.is_value) {
    json["dtype"] = key.dtype;
    json["shape"] = key.shape;
    json["shards"] = key.shards;
  }
  json["bytes"] = key.bytes;
  return json;
}

void add_verdict(Json& json, const std::vector<std::string>* faults) {
  if (faults == nullptr) return;
  json["intact"] = faults->empty();
  json["faults"] = *faults;
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

std::vector<KeyInfo> matching_keys(const std::vector<KeyInfo>& keys, const std::string& pattern) {
  std::string glob = pattern;
  if (glob.find_first_of("*?[") == std::string::npos) glob = "*" + glob + "*";
  std::vector<KeyInfo> matching;
  for (const KeyInfo& key : keys)
    if (::fnmatch(glob.c_str(), key.name.c_str(), 0) == 0) matching.push_back(key);
  return matching;
}

std::string inspection_text(const Inspection& in, const std::string& pattern) {
  std::string text = head(in) + "\n";
  if (!pattern.empty()) {
    const auto keys = matching_keys(in.keys, pattern);
    std::vector<std::vector<std::string>> rows;
    for (const KeyInfo& key : keys) rows.push_back(key_row(key.name, key, 1));
    return text + std::to_string(keys.size()) + " of " + std::to_string(in.keys.size()) + " keys match\n" +
           table(rows, kKeyColumns);
  }
  std::vector<std::vector<std::string>> files;
  for (const FileInfo& file : in.files) files.push_back({file.name, size_text(file.size)});
  return text + sums(in.keys) + "\nkeys\n" + folded_keys(in.keys) + "\nfiles\n" + table(files, {false, true});
}

std::string run_text(const std::filesystem::path& folder, const std::vector<StepInfo>& steps) {
  const std::int64_t best = newest(steps);
  std::vector<std::vector<std::string>> rows;
  for (const StepInfo& step : steps) {
    const bool is_newest = step.step == best && step.state == StepInfo::State::kComplete;
    rows.push_back(
        {step.name, state_text(step.state), step.holds, size_text(step.bytes), is_newest ? "the newest" : step.detail});
  }
  return folder.string() + "\n" + table(rows, {false, false, false, true, false});
}

std::string inspection_json(const Inspection& in, const std::string& pattern, const std::vector<std::string>* faults) {
  Json json = {{"path", in.path.string()}, {"format", kind_name(in.kind)},
               {"step", or_null(in.step)}, {"tokens_seen", or_null(in.tokens_seen)},
               {"save_id", in.save_id},    {"checksums", in.has_checksums}};
  Json& keys = json["keys"] = Json::array();
  for (const KeyInfo& key : pattern.empty() ? in.keys : matching_keys(in.keys, pattern)) keys.push_back(key_json(key));
  Json& files = json["files"] = Json::array();
  for (const FileInfo& file : in.files) files.push_back({{"name", file.name}, {"bytes", file.size}});
  add_verdict(json, faults);
  return json.dump(2) + "\n";
}

std::string run_json(const std::filesystem::path& folder, const std::vector<StepInfo>& steps,
                     const std::vector<std::string>* faults) {
  const std::int64_t best = newest(steps);
  Json json = {{"path", folder.string()}, {"newest", best < 0 ? Json() : Json(best)}};
  Json& list = json["steps"] = Json::array();
  for (const StepInfo& step : steps)
    list.push_back({{"name", step.name},
                    {"step", step.step},
                    {"state", state_text(step.state)},
                    {"holds", step.holds},
                    {"bytes", step.bytes},
                    {"detail", step.detail}});
  add_verdict(json, faults);
  return json.dump(2) + "\n";
}

}  // namespace titan::checkpoint
