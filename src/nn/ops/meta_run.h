// A run without values: the model goes through a step on the meta device, whose allocator counts
// (train/dry_run/memory_estimate.h).
// Code that such a run passes through says here what memory is for, and asks which device the meta device stands for.
#pragma once

namespace titan::meta_run {

// Whether the meta device stands for a GPU, with its side streams and fused kernels, or for a CPU. Of the process.
bool stands_for_gpu();
void stand_for_gpu(bool is_gpu);

// What the memory that this thread allocates is for.
enum class Use {
  kOther,      // found out by when it is freed
  kGathered,   // whole parameters, and the buffers that they come in
  kReduction,  // gradients on their way to the shards
  kHost        // what a GPU's host holds
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

// While it lives, this thread allocates on a side stream, of which a GPU's allocator keeps a pool of its own; 0 is the
// stream that computes.
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
// The number of a side stream that was not there before; 0 where the meta device stands for a CPU, which has none.
int new_stream();

}  // namespace titan::meta_run
