#include "checkpoint/dcp/ranks.h"

#include "base/limits/system_limits.h"
#include "base/process/common_error.h"

namespace titan::checkpoint {
namespace {

constexpr char kOk = '+';
constexpr char kFailed = '!';
constexpr char kDamaged = '?';

std::string attempt(const std::function<std::string()>& step) {
  try {
    return kOk + step();
  } catch (const DamagedCheckpoint& error) {
    return kDamaged + message_of_error(error);
  } catch (const std::exception& error) {
    return kFailed + message_of_error(error);
  }
}

bool failed(const std::string& reply) { return reply.empty() || reply[0] != kOk; }

std::string message_of(const std::string& reply) { return reply.empty() ? "no answer" : reply.substr(1); }

}  // namespace

std::vector<std::string> on_every_rank(Ranks& ranks, const std::string& action,
                                       const std::function<std::string()>& step) {
  std::vector<std::string> replies = ranks.all_gather(attempt(step));
  std::string errors;
  bool only_damage = true;
  for (std::size_t rank = 0; rank < replies.size(); ++rank) {
    if (!failed(replies[rank])) continue;
    if (!errors.empty()) errors += "; ";
    only_damage &= replies[rank].starts_with(kDamaged);
    if (replies.size() > 1) errors += "rank " + std::to_string(rank) + ": ";
    errors += message_of(replies[rank]);
  }
  if (!errors.empty() && only_damage) throw DamagedCheckpoint(common_error(action + ": " + errors));
  if (!errors.empty()) throw CheckpointError(common_error(action + ": " + errors));
  for (std::string& reply : replies) reply.erase(0, 1);
  return replies;
}

std::string on_rank_0(Ranks& ranks, const std::string& action, const std::function<std::string()>& step) {
  std::string reply = ranks.broadcast(ranks.rank() == 0 ? attempt(step) : std::string(), 0);
  if (failed(reply)) throw CheckpointError(common_error(action + ": " + message_of(reply)));
  return reply.substr(1);
}

}  // namespace titan::checkpoint
