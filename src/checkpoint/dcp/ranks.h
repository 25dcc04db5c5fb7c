// The few collectives that a save or load needs, and how a failure on one rank becomes an error on all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "distributed/process_group.h"

namespace titan::checkpoint {

// Files that are there, and not as they were written: an older checkpoint may still be good.
class DamagedCheckpoint : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// An interface so that a save can run over a process group, or over threads of one process. All calls are collective.
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

// Every rank runs `step` and gets the results of all. Should any rank throw, all ranks throw one CheckpointError that
// says "<action>: rank 1: <its message>; …", a DamagedCheckpoint when every failed rank threw one.
std::vector<std::string> on_every_rank(Ranks& ranks, const std::string& action,
                                       const std::function<std::string()>& step);

// Rank 0 runs `step`, all ranks get its result or its CheckpointError.
std::string on_rank_0(Ranks& ranks, const std::string& action, const std::function<std::string()>& step);

}  // namespace titan::checkpoint
