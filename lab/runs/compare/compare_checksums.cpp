#include "lab/runs/compare/compare_checksums.h"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/limits/parse_json.h"
#include "base/run_layout.h"

namespace titan::runs {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Keeps only the positions of rows and parses them on demand: a row has two numbers per parameter.
class ChecksumFile {
 public:
  explicit ChecksumFile(const fs::path& folder) : in_(folder / layout::kChecksumsFile, std::ios::binary) {
    is_there_ = in_.is_open();
    std::streamoff begin = 0;
    for (std::string line; std::getline(in_, line);) {
      const Json row = try_parse_json<Json>(line);
      if (const auto step = find_integer(row, "step")) places_[*step] = begin;
      begin += static_cast<std::streamoff>(line.size()) + 1;
    }
  }

  bool is_there() const { return is_there_; }
  bool has(std::int64_t step) const { return places_.contains(step); }
  const std::map<std::int64_t, std::streamoff>& places() const { return places_; }

  Json row(std::int64_t step) {
    in_.clear();
    in_.seekg(places_.at(step));
    std::string line;
    std::getline(in_, line);
    return parse_json<Json>(line);
  }

 private:
  std::ifstream in_;
  bool is_there_ = false;
  std::map<std::int64_t, std::streamoff> places_;
};

struct Count {
  std::int64_t differ = 0, all = 0;
  std::string first;
};

// Counts differing checksums; a name that only one side has counts as different.
Count count_differences(const Json& a, const Json& b, const char* kind) {
  const Json none = Json::object();
  const Json& of_a = a.contains(kind) && a[kind].is_object() ? a[kind] : none;
  const Json& of_b = b.contains(kind) && b[kind].is_object() ? b[kind] : none;
  Count out;
  const auto add = [&](const std::string& name, bool differs) {
    ++out.all;
    if (!differs) return;
    ++out.differ;
    if (out.first.empty()) out.first = name;
  };
  for (const auto& [name, sum] : of_a.items()) add(name, !of_b.contains(name) || of_b[name] != sum);
  for (const auto& [name, sum] : of_b.items())
    if (!of_a.contains(name)) add(name, true);
  return out;
}

}  // namespace

ChecksumComparison compare_checksums(const fs::path& a, const fs::path& b) {
  ChecksumFile file_a(a), file_b(b);
  ChecksumComparison out{.is_in_a = file_a.is_there(), .is_in_b = file_b.is_there()};
  for (const auto& [step, place] : file_a.places()) {
    if (!file_b.has(step)) continue;
    ++out.common_steps;
    if (out.parting) continue;
    const Json row_a = file_a.row(step), row_b = file_b.row(step);
    const Count gradients = count_differences(row_a, row_b, "gradients");
    const Count weights = count_differences(row_a, row_b, "weights");
    if (gradients.differ + weights.differ == 0) {
      out.last_equal = step;
      continue;
    }
    const bool by_gradient = gradients.differ > 0;
    out.parting = ChecksumParting{.step = step,
                                  .kind = by_gradient ? "gradient" : "weight",
                                  .parameter = by_gradient ? gradients.first : weights.first,
                                  .gradients_differ = gradients.differ,
                                  .gradients = gradients.all,
                                  .weights_differ = weights.differ,
                                  .weights = weights.all};
  }
  return out;
}

}  // namespace titan::runs
