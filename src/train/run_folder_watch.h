// Ends a run whose dump folder somebody has removed, moved or replaced.
#pragma once

#include <cstdint>

#include "train/run_folder.h"
#include "train/step/step_guest.h"

namespace titan::train {

// Looks after every step, before any other guest writes to the folder, and at the end. Only rank 0 looks, at one file:
// the others stop with its reason.
class RunFolderWatch : public StepGuest {
 public:
  // `lock` is null on ranks other than 0. It and `config` must outlive the calls.
  RunFolderWatch(const FileLock* lock, const config::JobConfig& config) : lock_(lock), config_(config) {}

  // Throws Error, as finish() does.
  Verdict after_step(const StepView& /*step*/) override {
    check();
    return Verdict::go_on();
  }
  void finish(RunEnd /*end*/, std::int64_t /*finished_steps*/) override { check(); }

 private:
  void check() const {
    if (lock_) check_run_folder_is_held(*lock_, config_);
  }

  const FileLock* lock_;
  const config::JobConfig& config_;
};

}  // namespace titan::train
