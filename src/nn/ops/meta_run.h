// A run without values: the model goes through a step on the meta device with a counting allocator
// (train/dry_run/memory_estimate.h). Code in such a run declares here what memory is for, and asks which device the
// meta device stands for.
#pragma once

namespace titan::meta_run {

// True if the meta device stands for a GPU, with its side streams and fused kernels, instead of a CPU. Process-wide.
bool stands_for_gpu();
void stand_for_gpu(bool is_gpu);

// The purpose of the memory that this thread allocates.
enum class Use {
  kOther,      // derived from the time when it is freed
  kGathered,   // full parameters, and the buffers that they are gathered into
  kReduction,  // gradients on their way to the shards
  kHost        // memory of a GPU's host
};

// While it lives, this thread allocates for `use`.
class UseScope {
 public:
  explicit UseScope(Use use);
  ~UseScope();
  UseScope(const UseScope&) = delete;
  UseScope& operator=(const UseScope&) = delete;

 private:
  Use outer_;
};

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

Use current_use();
int current_stream();
// Returns the number of a new side stream; 0 if the meta device stands for a CPU, which has none.
int new_stream();

}  // namespace titan::meta_run
