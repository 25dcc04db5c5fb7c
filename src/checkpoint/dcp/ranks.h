// Collectives that a save or load needs; they turn a failure on one rank into an error on all ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "distributed/process_group.h"

namespace titan::checkpoint {

// Error for files that differ from what was written: an older checkpoint may still be good.
class DamagedCheckpoint : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// Interface that lets a save run over a process group, or over threads of one process. All calls are collective.
class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::vector<std::string> all_gather(const std::string& bytes) = 0;
  virtual std::string broadcast(const std::string& bytes, int root) = 0;
};

class GroupRanks : public Ranks {
 public:
  // `group` must outlive this.
  explicit GroupRanks(dist::ProcessGroup& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::vector<std::string> all_gather(const std::string& bytes) override { return group_.all_gather_bytes(bytes); }
  std::string broadcast(const std::string& bytes, int root) override { return group_.broadcast_bytes(bytes, root); }

 private:
  dist::ProcessGroup& group_;
};

// Runs `step` on every rank and returns the results of all. If any rank throws, all ranks throw one CheckpointError,
// "<action>: rank 1: <its message>; …", or a DamagedCheckpoint if every failed rank threw one.
std::vector<std::string> on_every_rank(Ranks& ranks, const std::string& action,
                                       const std::function<std::string()>& step);

// Runs `step` on rank 0 and returns its result on all ranks, or throws its error as CheckpointError on all ranks.
std::string on_rank_0(Ranks& ranks, const std::string& action, const std::function<std::string()>& step);

}  // namespace titan::checkpoint
