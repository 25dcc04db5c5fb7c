// Gloo for tensors of an accelerator, through copies in host memory.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace titan::dist {

// Lets ranks that share one device communicate, which NCCL refuses. Slow: every call copies its input to the host,
// waits for `host` to finish, and copies the result back, so it returns only when the result is there. It reads its
// input and writes its output on the caller's current stream; in that it orders work as NCCL does after wait(). A send
// also copies when it starts, but does not wait; a receive copies to the device in wait(), on the stream that is
// current there, after what was queued on the one that was current at its start. `host` is a backend for CPU tensors
// over the same ranks that nothing else uses.
c10::intrusive_ptr<c10d::Backend> make_host_staged_backend(c10::intrusive_ptr<c10d::Backend> host);

}  // namespace titan::dist
