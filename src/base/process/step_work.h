// Counts how much of the current step is done, in layers, to show the progress of a long step.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/process/phase.h"

namespace titan {

// The part of a pipeline schedule that a rank has begun last.
struct PipelineWork {
  std::int16_t stage = -1;  // of the whole model, from 0; -1 without a pipeline
  bool is_forward = true;
  bool has_ended = false;  // all of the schedule is done
  std::int32_t microbatch = 0;

  // Returns "forward of stage 2, microbatch 3"; empty without a pipeline, or after its end.
  std::string text() const;
};

// Progress of one step.
struct StepProgress {
  std::int64_t layers = 0, microbatches = 0;  // in the model; in the step
  std::int64_t forwards = 0;                  // layers whose forward has begun, over all microbatches so far
  std::int64_t losses = 0;                    // microbatches whose backward has begun
  std::int64_t backwards = 0;                 // layers whose backward has ended
  PipelineWork pipeline = {};                 // what runs now; the counts are of this rank's layers

  bool is_in_backward() const { return losses > 0 && losses * layers == forwards; }
  // Returns the progress, 0 to 1; a layer's backward counts as two forwards. 0 until the first
  // layer's forward has ended.
  double share() const;
  // "forward of layer 3 of 6", "backward of layer 6 of 6, microbatch 2 of 4"; empty before the first layer. With a
  // pipeline, the text of its work.
  std::string text() const;
};

// Counts layers. get() is callable from any thread, the rest only from the training thread.
class StepWork {
 public:
  // Sets the model's number of layers; 0 stops counting.
  void set_layers(std::int64_t layers) { layers_ = layers; }
  bool counts() const { return layers_ > 0; }
  void begin_step(std::int64_t microbatches);
  void begin_forward_of_layer() { ++forwards_; }
  void begin_backward() { ++losses_; }
  void end_backward_of_layer() { ++backwards_; }
  void begin_in_pipeline(const PipelineWork& work) { pipeline_ = work; }
  void end_pipeline();
  // Returns the text of the pipeline's work; empty in phases that do no such work.
  std::string of_pipeline(Phase phase) const;
  StepProgress get() const { return {layers_, microbatches_, forwards_, losses_, backwards_, pipeline_}; }

 private:
  std::atomic<PipelineWork> pipeline_ = PipelineWork{};
  std::atomic<std::int64_t> layers_ = 0, microbatches_ = 0, forwards_ = 0, losses_ = 0, backwards_ = 0;
};

// Returns the counts of this process's training thread.
StepWork& step_work();

}  // namespace titan
