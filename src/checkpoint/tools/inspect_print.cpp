#include "checkpoint/tools/inspect_print.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "base/pattern.h"
#include "base/text.h"
#include "base/text_table.h"
#include "base/utf8.h"
#include "checkpoint/names/torchtitan_main.h"
#include "checkpoint/tools/inspect_json.h"
#include "facts/shard_spec.h"

namespace titan::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kModel = "model";
const char* const kGroups[] = {kModel, "optimizer", "other"};

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

std::string shape_cell(const KeyInfo& key) { return key.is_value ? "" : dist::shape_text(key.shape); }

std::vector<std::string> key_row(const std::string& name, const KeyInfo& key, std::size_t count) {
  return {name, key.is_value ? "value" : key.dtype, shape_cell(key),
          key.is_value ? "" : std::to_string(key.shards) + (key.shards == 1 ? " box" : " boxes"),
          (count > 1 ? std::to_string(count) + " x " : "") + size_text(key.bytes)};
}

const std::vector<bool> kKeyColumns = {false, false, false, true, true};

// Splits a name into "layers.{}.attention.wq.weight" and its first number, or the name and nullopt if it has none.
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

// Merges keys of one group that differ in one number only, at the position of the first.
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

// Formats numbers as "3", "0-31" or "0-3,7".
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

// Returns a table of the folded keys of all groups, or of the model's.
std::string folded_keys(const std::vector<KeyInfo>& keys, bool all) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string group : kGroups) {
    if (!all && group != kModel) continue;
    for (const Folded& line : fold(keys, group)) {
      std::string name = line.key->name;
      if (line.numbers.size() > 1) {
        name = line.pattern;
        name.replace(name.find("{}"), 2, "{" + ranges(line.numbers) + "}");
      }
      rows.push_back(key_row(name, *line.key, std::max<std::size_t>(line.numbers.size(), 1)));
    }
  }
  return text_table(rows, kKeyColumns);
}

std::uint64_t size_of_files(const Inspection& in) {
  std::uint64_t size = 0;
  for (const FileInfo& file : in.files) size += file.size;
  return size;
}

// Returns "llama3 debugmodel, 6,212,352 parameters, float32".
std::string model_line(const Inspection& in, const Surroundings& around) {
  std::int64_t parameters = 0;
  std::set<std::string> dtypes;
  for (const KeyInfo& key : in.keys) {
    if (key.group != kModel || key.is_value) continue;
    dtypes.insert(key.dtype);
    if (to_own_names(key.name) == around.tied_name) continue;  // counted under its first name
    parameters += std::accumulate(key.shape.begin(), key.shape.end(), std::int64_t{1}, std::multiplies<std::int64_t>());
  }
  const std::string types = join(std::vector<std::string>(dtypes.begin(), dtypes.end()), " and ");
  return (around.model.empty() ? "" : around.model + ", ") + counted(parameters, "parameter") +
         (types.empty() ? "" : ", " + types);
}

std::string saved_line(const Inspection& in, const std::string& mesh) {
  return date_text(in.saved_at) + (in.ranks ? ", by " + counted(*in.ranks, "rank") + in_brackets(mesh) : "");
}

std::string head(const Inspection& in, const Surroundings& around) {
  std::vector<std::vector<std::string>> rows;
  if (in.kind == CheckpointKind::kDcp)
    rows.push_back({"step", in.step
                                ? std::to_string(*in.step)
                                : "none: it holds " + (has_optimizer(in) ? std::string("the model and its optimizer")
                                                                         : "the model only")});
  if (!around.loss.empty()) rows.push_back({"loss", around.loss});
  rows.push_back({"saved", saved_line(in, around.mesh)});
  rows.push_back({"size", size_text(size_of_files(in)) + " in " + counted(std::ssize(in.files), "file")});
  rows.push_back({"model", model_line(in, around)});
  if (in.tokens_seen) rows.push_back({"tokens seen", with_thousands(*in.tokens_seen) + " by rank 0"});
  rows.push_back({"format", kind_text(in.kind)});
  if (!in.names.empty()) rows.push_back({"names", in.names});
  if (in.kind != CheckpointKind::kTorch)
    rows.push_back({"checksums", in.has_checksums ? "of all files" : "none beside those of its records"});
  if (in.kind == CheckpointKind::kHuggingFace && !in.has_checksums) rows.back()[1] = "none";
  if (!in.save_id.empty()) rows.push_back({"save id", in.save_id});
  return in.path.string() + "\n" + text_table(rows, {false, false});
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
  return text_table(rows, {false, true, true, true});
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

}  // namespace

std::vector<KeyInfo> matching_keys(const std::vector<KeyInfo>& keys, const std::string& pattern) {
  std::string glob = pattern;
  if (glob.find_first_of("*?[") == std::string::npos) glob = "*" + glob + "*";
  std::vector<KeyInfo> matching;
  for (const KeyInfo& key : keys)
    if (matches_pattern(glob, key.name)) matching.push_back(key);
  return matching;
}

std::string inspection_text(const Inspection& in, const PrintOptions& options, const Surroundings& around) {
  std::string text = head(in, around) + "\n";
  if (!options.pattern.empty()) {
    const auto keys = matching_keys(in.keys, options.pattern);
    std::vector<std::vector<std::string>> rows;
    for (const KeyInfo& key : keys) rows.push_back(key_row(key.name, key, 1));
    return text + std::to_string(keys.size()) + " of " + counted(std::ssize(in.keys), "key") +
           (keys.size() == 1 ? " matches\n" : " match\n") + text_table(rows, kKeyColumns);
  }
  text += sums(in.keys) + (options.all ? "\nkeys\n" : "\nkeys of the model\n") + folded_keys(in.keys, options.all);
  if (!options.all) {
    const auto others = std::ranges::count_if(in.keys, [](const KeyInfo& key) { return key.group != kModel; });
    return text + (others == 0
                       ? ""
                       : "  and " + counted(others, "key") + " of the optimizer and the run, which --all lists\n");
  }
  std::vector<std::vector<std::string>> files;
  for (const FileInfo& file : in.files) files.push_back({file.name, size_text(file.size)});
  return text + "\nfiles\n" + text_table(files, {false, true});
}

std::string faults_text(const std::vector<Fault>& faults) {
  constexpr int kShown = 3;
  std::string text;
  std::map<std::string, int> left;  // per file, the number of faults that are not shown
  for (const Fault& fault : faults) left[fault.file]++;
  for (auto& [file, count] : left) count = file.empty() || count <= kShown + 1 ? 0 : count - kShown;
  std::map<std::string, int> shown;
  for (const Fault& fault : faults) {
    const int more = left[fault.file], place = ++shown[fault.file];
    if (more == 0 || place <= kShown) text += "  " + fault.text + "\n";
    if (more > 0 && place == kShown) text += "  ... and " + std::to_string(more) + " more in " + fault.file + "\n";
  }
  return text;
}

std::string inspection_json(const Inspection& in, const std::string& pattern, const std::vector<Fault>* faults) {
  Json json = {{"path", escape_invalid_utf8(in.path.string())},
               {"format", kind_name(in.kind)},
               {"step", or_null(in.step)},
               {"tokens_seen", or_null(in.tokens_seen)},
               {"save_id", in.save_id},
               {"checksums", in.has_checksums},
               {"names", in.names}};
  Json& keys = json["keys"] = Json::array();
  for (const KeyInfo& key : pattern.empty() ? in.keys : matching_keys(in.keys, pattern)) keys.push_back(key_json(key));
  Json& files = json["files"] = Json::array();
  for (const FileInfo& file : in.files) files.push_back({{"name", file.name}, {"bytes", file.size}});
  if (faults != nullptr) add_verdict(json, *faults);
  return json.dump(2) + "\n";
}

}  // namespace titan::checkpoint
