// A run without values: the model goes through a step on the meta device with a counting allocator
// (train/dry_run/memory_estimate.h). Code in such a run asks here which device the meta device stands for, and declares
// streams; trace/operation.h says what memory is for.
#pragma once

namespace titan::meta_run {

// True if the meta device stands for a GPU, with its side streams and fused kernels, instead of a CPU. Process-wide.
bool stands_for_gpu();
void stand_for_gpu(bool is_gpu);

// While it lives, this thread allocates on a side stream, which has its own pool in a GPU's allocator; 0 is the stream
// that computes.
class StreamScope {
 public:
  explicit StreamScope(int stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  int outer_;
};

int current_stream();
// Returns the number of a new side stream; 0 if the meta device stands for a CPU, which has none.
int new_stream();

}  // namespace titan::meta_run
