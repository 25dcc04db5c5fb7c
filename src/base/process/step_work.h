// How much of the step under way is done, in layers: for whoever shows a step that takes long.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace titan {

// Says how far one step is.
struct StepProgress {
  std::int64_t layers = 0, microbatches = 0;  // of the model; of the step
  std::int64_t forwards = 0;                  // layers whose forward has begun, of all microbatches so far
  std::int64_t losses = 0;                    // microbatches whose backward has begun
  std::int64_t backwards = 0;                 // layers whose backward is over

  bool is_in_backward() const { return losses > 0 && losses * layers == forwards; }
  // From 0 to 1, where a layer's backward counts as two forwards. 0 before the first layer's forward is over.
  double share() const;
  // "forward of layer 3 of 6", "backward of layer 6 of 6, microbatch 2 of 4"; empty before the first layer.
  std::string text() const;
};

// Counts them. get() from any thread, the rest from the thread that trains.
class StepWork {
 public:
  // The number of layers of the model; 0 ends the counting.
  void set_layers(std::int64_t layers) { layers_ = layers; }
  bool counts() const { return layers_ > 0; }
  void begin_step(std::int64_t microbatches);
  void begin_forward_of_layer() { ++forwards_; }
  void begin_backward() { ++losses_; }
  void end_backward_of_layer() { ++backwards_; }
  StepProgress get() const { return {layers_, microbatches_, forwards_, losses_, backwards_}; }

 private:
  std::atomic<std::int64_t> layers_ = 0, microbatches_ = 0, forwards_ = 0, losses_ = 0, backwards_ = 0;
};

// Returns the counts of the thread that trains in this process.
StepWork& step_work();

}  // namespace titan
