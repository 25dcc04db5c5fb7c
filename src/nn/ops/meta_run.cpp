#include "nn/ops/meta_run.h"

#include <atomic>
#include <utility>

namespace titan::meta_run {
namespace {

std::atomic<bool> is_for_gpu = false;
std::atomic<int> num_streams = 0;
thread_local int stream_of_thread = 0;

}  // namespace

bool stands_for_gpu() { return is_for_gpu; }
void stand_for_gpu(bool is_gpu) { is_for_gpu = is_gpu; }

StreamScope::StreamScope(int stream) : outer_(std::exchange(stream_of_thread, stream)) {}
StreamScope::~StreamScope() { stream_of_thread = outer_; }

int current_stream() { return stream_of_thread; }
int new_stream() { return stands_for_gpu() ? ++num_streams : 0; }

}  // namespace titan::meta_run
