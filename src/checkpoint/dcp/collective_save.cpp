#include "checkpoint/dcp/collective_save.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files/path_watch.h"
#include "base/fs.h"
#include "checkpoint/dcp/commit.h"
#include "checkpoint/io/discard.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

// Encodes the items that each rank writes.
std::string encode_assignment(const SavePlan& plan) {
  std::string bytes;
  nlohmann::json::to_msgpack(nlohmann::json(plan.items), bytes);
  return bytes;
}

std::vector<std::size_t> items_of_rank(const std::string& assignment, int rank) {
  return nlohmann::json::from_msgpack(assignment).at(static_cast<std::size_t>(rank)).get<std::vector<std::size_t>>();
}

SavePlan join_plans(const std::vector<std::string>& plans) {
  std::vector<std::vector<PlanEntry>> decoded;
  for (const std::string& bytes : plans) decoded.push_back(decode_plan(bytes));
  return plan_save(decoded);
}

void make_fresh_folder(const fs::path& folder) {
  if (!folder.parent_path().empty()) fs::create_directories(folder.parent_path());
  free_name(folder);
  fs::create_directory(folder);
}

// The temporary folder that a save writes to. If somebody removes the run's folder meanwhile and starts another run
// there, that run writes to a folder of the same name.
class NewFolder {
 public:
  explicit NewFolder(const fs::path& path) : path_(path) {
    make_fresh_folder(path);
    fd_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd_ < 0) throw CheckpointError("cannot open " + path.string() + ": " + std::strerror(errno));
    watch_.emplace(fd_, path);
  }
  ~NewFolder() { close(); }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Throws std::system_error if the path does not name this folder any more.
  void check() const {
    if (watch_) watch_->check();
  }
  std::string fate() const { return watch_ ? watch_->fate() : ""; }
  // Ends the watch before the folder is renamed; some file systems rename no folder that is open.
  void close() {
    watch_.reset();
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  fs::path path_;
  int fd_ = -1;
  std::optional<PathWatch> watch_;
};

void wait_for_rank_0(Ranks& ranks) {
  try {
    ranks.broadcast("", 0);
  } catch (const std::exception&) {
    // Rank 0 or another rank is gone; the error that led here came first.
  }
}

}  // namespace

std::uint64_t collective_save(const fs::path& folder, const std::string& action, const std::vector<Item>& items,
                              Ranks& ranks, const SaveSteps& steps) {
  const fs::path temporary = temporary_folder(folder);
  const auto plans = on_every_rank(ranks, action, [&] {
    if (steps.plan) steps.plan();
    return encode_plan(local_plan(items));
  });
  SavePlan plan;                  // filled on rank 0 only
  std::optional<NewFolder> made;  // on rank 0 only
  const std::string assignment = on_rank_0(ranks, action, [&] {
    plan = join_plans(plans);
    if (steps.check) steps.check(plan);
    made.emplace(temporary);
    if (steps.prepare) steps.prepare(temporary);
    return encode_assignment(plan);
  });
  try {
    const auto written =
        on_every_rank(ranks, action, [&] { return steps.write(temporary, items_of_rank(assignment, ranks.rank())); });
    return std::stoull(on_rank_0(ranks, action, [&] {
      made->check();
      const std::uint64_t bytes = steps.commit(temporary, written, plan);
      fsync_folder(temporary);
      made->check();
      made->close();
      put_in_place(folder);
      return std::to_string(bytes);
    }));
  } catch (const CheckpointError&) {
    // Frees the disk space, unless the folder is another run's. It may already be the old checkpoint, swapped out but
    // not removed. All ranks wait for rank 0: a rank that ended its process now would also end rank 0 during this work.
    std::error_code ignored;
    if (made && made->fate().empty()) fs::remove_all(temporary, ignored);
    wait_for_rank_0(ranks);
    throw;
  }
}

}  // namespace titan::checkpoint
