#include "parallel/fsdp/agreement.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "facts/shard_spec.h"

namespace titan::fsdp {
namespace {

// A rank's parameters in order, as name and description.
using Listing = std::vector<std::pair<std::string, std::string>>;

std::string describe(const ParamFacts& facts) {
  return dist::shape_text(facts.shape) + " " + c10::toString(facts.dtype) + " (sharded along dim " +
         std::to_string(facts.shard_dim) + " in group " + std::to_string(facts.group + 1) +
         (facts.trained ? ")" : ", frozen)");
}

std::string to_lines(const std::vector<ParamFacts>& params) {
  std::string lines;
  for (const auto& facts : params) lines += facts.fqn + "\t" + describe(facts) + "\n";
  return lines;
}

Listing from_lines(const std::string& lines) {
  Listing out;
  for (const auto& line : split(lines, '\n')) {
    const auto tab = line.find('\t');
    if (tab != std::string::npos) out.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  return out;
}

std::string on_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> numbers;
  for (const int rank : ranks) numbers.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? " on rank " : " on ranks ") + join(numbers, ", ");
}

// Returns "[7, 3] Float on ranks 0, 1; none on rank 2"; empty if all ranks have the same.
std::string variants_of(const std::string& fqn, const std::vector<std::map<std::string, std::string>>& by_rank,
                        const std::vector<int>& ranks) {
  std::vector<std::pair<std::string, std::vector<int>>> variants;
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    const auto found = by_rank[r].find(fqn);
    const std::string text = found == by_rank[r].end() ? "none" : found->second;
    auto same = std::find_if(variants.begin(), variants.end(), [&](const auto& v) { return v.first == text; });
    if (same == variants.end()) same = variants.insert(variants.end(), {text, {}});
    same->second.push_back(ranks[r]);
  }
  if (variants.size() == 1) return "";
  std::vector<std::string> parts;
  for (const auto& [text, who] : variants) parts.push_back(text + on_ranks(who));
  return join(parts, "; ");
}

[[noreturn]] void throw_order(const std::vector<Listing>& listings, const std::vector<int>& ranks) {
  for (std::size_t r = 1; r < listings.size(); ++r) {
    for (std::size_t i = 0; i < listings[0].size(); ++i) {
      const auto& expected = listings[0][i].first;
      const auto& found = listings[r][i].first;
      if (expected != found) {
        throw DistError("[fsdp] the ranks' parameters come in different order: number " + std::to_string(i + 1) +
                        " is " + expected + on_ranks({ranks[0]}) + " and " + found + on_ranks({ranks[r]}));
      }
    }
  }
  throw InternalError("[fsdp] the ranks' parameters have different digests but do not differ");
}

[[noreturn]] void throw_difference(const std::vector<Listing>& listings, const std::vector<int>& ranks) {
  std::vector<std::map<std::string, std::string>> by_rank;
  std::vector<std::string> names;
  for (const auto& listing : listings) {
    by_rank.emplace_back(listing.begin(), listing.end());
    for (const auto& [fqn, text] : listing) {
      if (std::find(names.begin(), names.end(), fqn) == names.end()) names.push_back(fqn);
    }
  }
  std::string first;
  int more = 0;
  for (const auto& fqn : names) {
    const auto variants = variants_of(fqn, by_rank, ranks);
    if (variants.empty()) continue;
    if (!first.empty()) {
      ++more;
    } else {
      first = fqn + ": " + variants;
    }
  }
  if (first.empty()) throw_order(listings, ranks);
  throw DistError("[fsdp] the ranks do not have the same parameters: " + first +
                  (more > 0 ? "; and " + std::to_string(more) + " more parameters differ" : "") +
                  ". Build the same model on every rank, and call fully_shard alike");
}

}  // namespace

void check_ranks_agree(const std::vector<ParamFacts>& params, dist::ProcessGroup& ranks) {
  if (ranks.size() == 1) return;
  const std::string lines = to_lines(params);
  const auto mine = at::full({1}, static_cast<std::int64_t>(std::hash<std::string>()(lines)), at::kLong);
  const auto digests = at::empty({ranks.size()}, at::kLong);
  ranks.all_gather(digests, mine).wait();
  if (digests.eq(digests[0]).all().item<bool>()) return;
  std::vector<Listing> listings;
  for (const auto& theirs : ranks.all_gather_bytes(lines)) listings.push_back(from_lines(theirs));
  throw_difference(listings, ranks.ranks());
}

}  // namespace titan::fsdp
