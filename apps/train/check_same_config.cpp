#include "apps/train/check_same_config.h"

#include <spdlog/fmt/fmt.h>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/io/checksums.h"
#include "config/keys/fields.h"

namespace titan {
namespace {

bool is_shared(const std::string& key) {
  const bool names_files = key.ends_with("_path") || key == "training.dataset_mix" || key == "chat.chat_template";
  return !key.starts_with("job.") && !names_files;
}

}  // namespace

std::vector<std::string> shared_values(const config::JobConfig& config, const std::string& chat_template) {
  std::vector<std::string> values;
  for (const auto& field : config::fields())
    if (is_shared(field.key)) values.push_back(field.key + " = " + config::to_toml_value(field.get(config)));
  const auto text = checkpoint::checksum_of(chat_template);
  values.push_back(text.size == 0
                       ? "no chat template"
                       : fmt::format("a chat template of {} bytes with checksum {:08x}", text.size, text.crc));
  return values;
}

std::optional<std::string> find_disagreement(const std::vector<std::string>& mine,
                                             const std::vector<std::string>& of_rank_0, int rank) {
  const std::string self = "rank " + std::to_string(rank);
  if (mine.size() != of_rank_0.size()) return "error: " + self + " runs another titan-train than rank 0";
  std::vector<std::string> differing;
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (mine[i] != of_rank_0[i]) differing.push_back(mine[i] + " (rank 0: " + of_rank_0[i] + ")");
  if (differing.empty()) return std::nullopt;
  return "error: " + self + " has another configuration than rank 0: " + join(differing, ", ") +
         "; start all ranks with the same files, variables and flags";
}

void check_same_config(const config::JobConfig& config, const std::string& chat_template, const dist::World& world) {
  const auto mine = shared_values(config, chat_template);
  const auto of_rank_0 = split(world.group().broadcast_bytes(join(mine, "\n"), 0), '\n');
  if (const auto wrong = find_disagreement(mine, of_rank_0, world.rank())) throw ConfigError(*wrong);
}

}  // namespace titan
