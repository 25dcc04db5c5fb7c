#include "pipeline/stage_split.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "pipeline/nearest_numbers.h"
#include "pipeline/pipeline_keys.h"

namespace titan::pipeline {
namespace {

std::string text(std::int64_t value) { return std::to_string(value); }

std::int64_t counted_layers(const StageRequest& request) {
  return request.num_layers + request.first_stage_less_layers + request.last_stage_less_layers;
}

std::string layers_text(const StageRequest& request) {
  return text(request.num_layers) + " layers + " + kFirstKey + " (" + text(request.first_stage_less_layers) + ") + " +
         kLastKey + " (" + text(request.last_stage_less_layers) + ")";
}

// Throws ConfigError if the schedule cannot have so many stages per rank. `keys` decide the number.
void check_stages_per_rank(const StageRequest& request, std::int64_t num_stages, const std::string& given,
                           const std::string& hint, std::vector<std::string> keys) {
  const std::int64_t per_rank = num_stages / request.num_ranks;
  keys.emplace_back(kDegreeKey);
  keys.emplace_back(kScheduleKey);
  if (num_stages % request.num_ranks != 0 || num_stages == 0)
    throw ConfigError(given + " makes " + counted(num_stages, "stage") + ", which must be a multiple of " + kDegreeKey +
                          " (" + text(request.num_ranks) + "); " + hint,
                      keys);
  if (request.is_single_stage == (per_rank == 1)) return;
  throw ConfigError(given + " makes " + counted(per_rank, "stage") + " per rank, and " + kScheduleKey + " needs " +
                        (request.is_single_stage ? "exactly 1" : "at least 2") + "; " + hint +
                        (request.is_single_stage ? ", or take a schedule for several stages" : ", or take 1F1B"),
                    keys);
}

// Returns how many lists a user's own division may have instead of `found`: "4 or 6 lists".
std::string lists_text(const StageRequest& request, std::int64_t found) {
  if (request.is_single_stage) return counted(request.num_ranks, "list");
  const std::int64_t least = 2 * request.num_ranks;
  return (found < least ? text(least) : nearest_multiples(found, request.num_ranks)) + " lists";
}

// Returns the names of the model's modules, in its order.
StageModules all_modules(std::int64_t num_layers) {
  StageModules names = {"tok_embeddings"};
  for (std::int64_t i = 0; i < num_layers; ++i) names.push_back("layers." + text(i));
  names.insert(names.end(), {"norm", "output"});
  return names;
}

}  // namespace

std::int64_t num_stages(const StageRequest& request) {
  if (!request.layers_per_stage) return request.num_ranks * (request.is_single_stage ? 1 : 2);
  const std::int64_t layers = *request.layers_per_stage, counted = counted_layers(request);
  const std::int64_t stages = (counted + layers - 1) / layers;
  const std::int64_t wanted = request.num_ranks * (request.is_single_stage ? 1 : 2);
  check_stages_per_rank(request, stages,
                        std::string(kLayersKey) + " (" + text(layers) + ") for " + layers_text(request),
                        "set it to " + text(std::max<std::int64_t>(1, (counted + wanted - 1) / wanted)) + " for " +
                            text(wanted) + " stages",
                        {kLayersKey, kFirstKey, kLastKey});
  return stages;
}

std::vector<StageModules> split_into_stages(const StageRequest& request, std::int64_t num_stages) {
  if (num_stages == 1) return {all_modules(request.num_layers)};
  const std::int64_t counted = counted_layers(request), least = counted / num_stages, longer = counted % num_stages;
  const std::int64_t first = request.first_stage_less_layers, last = request.last_stage_less_layers;
  if (least == 0) {
    // Each stage has at least as many layers as the embedding, and as norm and output projection count for.
    const std::int64_t most_stages = counted / std::max<std::int64_t>({1, first, last});
    const std::int64_t most_ranks = most_stages / (num_stages / request.num_ranks);
    throw ConfigError(layers_text(request) + " are fewer than the " + text(num_stages) + " stages; set " + kDegreeKey +
                          " to " + (most_ranks > 1 ? "at most " : "") + text(std::max<std::int64_t>(1, most_ranks)),
                      {kDegreeKey, kLayersKey, kFirstKey, kLastKey});
  }
  for (const auto& [key, less, other] : {std::tuple(kFirstKey, first, last), std::tuple(kLastKey, last, first)})
    if (less > least)
      throw ConfigError(std::string(key) + " (" + text(less) + ") is more than the layers of a stage, " + text(least) +
                            ": " + layers_text(request) + " over " + text(num_stages) + " stages; set it to at most " +
                            text((request.num_layers + other) / (num_stages - 1)),
                        {key, kDegreeKey, kLayersKey});
  std::vector<StageModules> stages;
  std::int64_t next = 0;  // layer
  for (std::int64_t i = 0; i < num_stages; ++i) {
    const bool is_first = i == 0, is_last = i == num_stages - 1;
    StageModules names;
    if (is_first) names.emplace_back("tok_embeddings");
    const std::int64_t less = is_first ? request.first_stage_less_layers : is_last ? request.last_stage_less_layers : 0;
    for (std::int64_t end = next + least + (i < longer ? 1 : 0) - less; next < end; ++next)
      names.push_back("layers." + text(next));
    if (is_last) names.insert(names.end(), {"norm", "output"});
    stages.push_back(std::move(names));
  }
  return stages;
}

void check_stages(const std::vector<StageModules>& stages, const StageRequest& request) {
  check_stages_per_rank(request, static_cast<std::int64_t>(stages.size()),
                        std::string(kPartsKey) + " (" + text(static_cast<std::int64_t>(stages.size())) + " lists)",
                        "give it " + lists_text(request, static_cast<std::int64_t>(stages.size())), {kPartsKey});
  const StageModules expected = all_modules(request.num_layers);
  const auto refuse = [](const std::string& message) { throw ConfigError(message, {kPartsKey}); };
  std::vector<bool> seen(expected.size());
  std::size_t previous_last = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    std::size_t last = previous_last;
    for (const std::string& name : stages[i]) {
      const std::string where = std::string(kPartsKey) + ": stage " + text(static_cast<std::int64_t>(i)) + ": ";
      const std::size_t at = std::ranges::find(expected, name) - expected.begin();
      const auto nearest = nearest_name(name, expected);
      if (at == expected.size())
        refuse(where + "the model has no module \"" + name + "\"" +
               (nearest ? "; did you mean " + *nearest + "?" : "") + " It has " + expected.front() +
               ", layers.0 to layers." + text(request.num_layers - 1) + ", norm and output");
      if (seen[at]) refuse(where + name + " is in a stage already; each module belongs to one");
      if (at < previous_last)
        refuse(where + name + " comes before " + expected[previous_last] +
               " in the model, which is in an earlier stage");
      seen[at] = true;
      last = std::max(last, at);
    }
    if (stages[i].empty())
      refuse(std::string(kPartsKey) + ": stage " + text(static_cast<std::int64_t>(i)) + " is empty; give it a module");
    previous_last = last;
  }
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!seen[i]) refuse(std::string(kPartsKey) + ": " + expected[i] + " is in no stage; add it to one");
}

std::string in_short(const StageModules& modules) {
  constexpr std::string_view kBlock = "layers.";
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < modules.size();) {
    std::size_t end = i + 1;
    if (modules[i].starts_with(kBlock))
      while (end < modules.size() && modules[end].starts_with(kBlock)) ++end;
    parts.push_back(modules[i] + (end > i + 1 ? "-" + modules[end - 1].substr(kBlock.size()) : ""));
    i = end;
  }
  return join(parts, ", ");
}

}  // namespace titan::pipeline
