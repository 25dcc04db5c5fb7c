#include "train/dry_run/communication.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace titan::train {
namespace {

// A name around its first number: "layers.", 3, ".attention".
struct Numbered {
  std::string before, after;
  std::int64_t number = 0;
};

std::optional<Numbered> split_number(const std::string& name) {
  constexpr const char* kDigits = "0123456789";
  const auto begin = name.find_first_of(kDigits);
  if (begin == std::string::npos || name.find(',') != std::string::npos) return std::nullopt;
  const auto end = std::min(name.find_first_not_of(kDigits, begin), name.size());
  if (end - begin > 18) return std::nullopt;
  return Numbered{name.substr(0, begin), name.substr(end), std::stoll(name.substr(begin, end - begin))};
}

// Groups that share a line.
struct Row {
  fsdp::GroupFacts first;
  std::optional<Numbered> name;
  std::int64_t count = 1;
};

bool continues(const Row& row, const fsdp::GroupFacts& group) {
  const auto name = split_number(group.name);
  return row.name && name && row.name->before == name->before && row.name->after == name->after &&
         name->number == row.name->number + row.count && row.first.parameters == group.parameters &&
         row.first.gathered_bytes == group.gathered_bytes;
}

}  // namespace

std::vector<Messages> messages_of_step(const std::vector<PlannedCollective>& collectives, std::int64_t microbatches,
                                       std::int64_t all_microbatches) {
  std::vector<Messages> all;
  for (const PlannedCollective& each : collectives) {
    auto found = std::ranges::find_if(
        all, [&](const Messages& other) { return other.kind == each.kind && other.group == each.group; });
    if (found == all.end()) found = all.insert(all.end(), {each.kind, each.group});
    ++found->count;
    found->bytes += each.bytes;
  }
  for (Messages& each : all) {
    each.count = each.count * all_microbatches / microbatches;
    each.bytes = each.bytes / microbatches * all_microbatches;
  }
  return all;
}

std::vector<CommunicationLine> group_lines(const std::vector<fsdp::GroupFacts>& groups) {
  std::vector<Row> rows;
  for (const fsdp::GroupFacts& group : groups) {
    // Groups inside blocks alternate: layers.0.attention, layers.0.feed_forward, layers.1.attention, ...
    const auto row = std::ranges::find_if(rows, [&](const Row& other) { return continues(other, group); });
    if (row == rows.end()) {
      rows.push_back({group, split_number(group.name)});
    } else {
      ++row->count;
    }
  }
  std::vector<CommunicationLine> lines;
  for (const auto& [first, name, count] : rows) {
    const std::string size = format_bytes(static_cast<double>(first.gathered_bytes));
    if (count == 1) {
      lines.push_back({first.name, size});
    } else {
      lines.push_back({fmt::format("{}{{{}-{}}}{}", name->before, name->number, name->number + count - 1, name->after),
                       fmt::format("{} x {}", count, size)});
    }
  }
  return lines;
}

std::vector<CommunicationLine> message_lines(const std::vector<Messages>& messages) {
  std::vector<CommunicationLine> lines;
  for (const Messages& each : messages)
    lines.push_back({each.kind + " over " + each.group,
                     fmt::format("{} of {}", each.count, format_bytes(static_cast<double>(each.bytes)))});
  return lines;
}

}  // namespace titan::train
