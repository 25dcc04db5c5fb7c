// Runs a rank's order of a pipeline schedule: forward, backward, messages, and the collectives of fully_shard.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "distributed/process_group.h"
#include "nn/ops/weight_gradients.h"
#include "pipeline/pipeline_schedule.h"

namespace titan::parallel {

// The stages of this rank, as a schedule runs them. Stages and microbatches have the schedule's numbers.
class PipelineStages {
 public:
  virtual ~PipelineStages() = default;

  // Runs a stage's forward. `input`: what the stage before returned, requires a gradient if gradients are on; undefined
  // for the first stage. Returns what the next stage gets; of the last stage, a 0-d tensor whose gradient is wanted.
  virtual at::Tensor forward(int stage, int microbatch, const at::Tensor& input) = 0;
  // Returns an empty tensor like what a stage gives to the next one, for this microbatch.
  virtual at::Tensor empty_output(int microbatch) = 0;
  // Gather and free the parameters of a stage.
  virtual void unshard(int stage) = 0;
  virtual void reshard(int stage) = 0;
  // Keeps the gradients of weights that came after a microbatch's backward.
  virtual void keep_gradients(int stage) = 0;
  // Starts to reduce the gradients of a stage, to which all microbatches have added.
  virtual void reduce_gradients(int stage) = 0;
};

// All ranks of `group` have the same schedule, with communication (pipeline/with_communication.h) and without a fault
// (pipeline/check_schedule.h); rank r of the group runs the order r. `stages` and `group` must outlive this.
class ScheduleRunner {
 public:
  ScheduleRunner(pipeline::PipelineSchedule schedule, dist::ProcessGroup& group, PipelineStages& stages);

  // Runs forward and backward of all microbatches. Gradients of fully_shard's groups are reduced, or being reduced, on
  // return. Collective over the group.
  void run();
  // Runs forward alone, of any number of microbatches (pipeline::forwards_alone). Collective over the group.
  void run_forward(int num_microbatches);

 private:
  // Holds what exists of a microbatch in a stage, from its input to its last gradient.
  struct InFlight {
    at::Tensor input, output, output_grad, input_grad;
    dist::Work input_work, output_grad_work;
    nn::WeightGradients weight_gradients;
  };

  static void begin(const pipeline::Action& action);
  void run(const pipeline::PipelineSchedule& schedule);
  void act(const pipeline::Action& action);
  void receive_input(int stage, int microbatch);
  void forward(int stage, int microbatch);
  void send_output(int stage, int microbatch);
  void receive_output_grad(int stage, int microbatch);
  void backward(const pipeline::Action& action);
  void send_input_grad(int stage, int microbatch);
  void add_weight_gradients(int stage, int microbatch);
  void send(const at::Tensor& tensor, int to);

  InFlight& in_flight(int stage, int microbatch) { return in_flight_[{stage, microbatch}]; }
  int last_stage() const { return schedule_.num_stages() - 1; }
  // Returns the rank of a stage, or -1 if this rank has it.
  int other_rank_of(int stage) const;
  void finish();

  pipeline::PipelineSchedule schedule_;
  dist::ProcessGroup& group_;
  PipelineStages& stages_;
  std::map<std::pair<int, int>, InFlight> in_flight_;
  std::deque<std::pair<at::Tensor, dist::Work>> sent_;  // the last messages, kept until they have arrived
};

}  // namespace titan::parallel
