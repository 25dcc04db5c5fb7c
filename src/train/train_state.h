// Saves the state of a run in checkpoints, under TorchTitan's keys, and restores it.
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "contract/batch_source.h"
#include "metrics/metrics_processor.h"
#include "optim/grad_scaler.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "train/run_record.h"
#include "train/step/run_parameters.h"
#include "train/step/step_guest.h"

namespace titan::train {

// Returns this rank's parts of the weights under every name that checkpoints have. They share the parameters' memory.
std::vector<checkpoint::Item> weight_items(const RunParameters& parameters);

// Returns this rank's parts of the optimizer's state, and its parameter groups. `lr` is the rate of the next step.
std::vector<checkpoint::Item> optimizer_items(optim::Optimizer& optimizer, double lr, double base_lr);

// Refers to the live objects of a run, and owns none of them.
class TrainState : public checkpoint::CheckpointState {
 public:
  struct Parts {
    const RunParameters* parameters;
    optim::Optimizer* optimizer;
    const optim::LrSchedule* schedule;
    optim::GradScaler* grad_scaler;  // null without float16
    double base_lr;                  // optimizer.lr
    BatchSource* data;
    metrics::MetricsProcessor* metrics;
    const RunRecord* record;
    int rank;
    int world_size;
    int data_parallel_size;  // number of ranks with different batches
  };
  explicit TrainState(Parts parts) : parts_(parts) {}

  // Saves the state of `guest`, which must have a key for it, in every full save from now on. It must outlive this.
  void also_saves(StepGuest& guest) { guests_.push_back(&guest); }

  std::int64_t step = 0;  // finished steps

  std::vector<checkpoint::Item> items(bool model_only) override;
  std::vector<checkpoint::Item> probes() override;
  void check_fits(const Values& saved) override;
  void restored(const Values& values, bool model_only) override;

 private:
  void append_data(std::vector<checkpoint::Item>& items) const;
  void restore_data(const Values& values);
  void restore_progress(const Values& values);
  void restore_grad_scaler(const Values& values);
  void restore_hyperparameters(const Values& values);

  Parts parts_;
  std::vector<StepGuest*> guests_;  // the guests that have state
};

}  // namespace titan::train
