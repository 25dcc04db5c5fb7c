// Functions of CUDA's runtime about streams, events and graphs. Nothing is ever captured.
#include "tests/support/null_cuda/errors.h"
#include "tests/support/null_cuda/streams.h"
#include "tests/support/null_cuda/trace.h"

using namespace titan_null;

namespace {

Event& event_of(cudaEvent_t event) { return *reinterpret_cast<Event*>(event); }

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  count_call("cudaStreamCreate");
  *stream = reinterpret_cast<cudaStream_t>(make_stream(current_device(), flags, priority));
  return result(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  release_stream(&stream_of(stream));
  return result(cudaSuccess);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream_of(stream).priority;
  return result(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return result(stream_of(stream).is_idle() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  count_wait("cudaStreamSynchronize");
  stream_of(stream).wait();
  return result(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  count_call("cudaStreamWaitEvent");
  wait_for(event_of(event), stream_of(stream));
  return result(cudaSuccess);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
  stream_of(stream).run([=] { callback(stream, device_error(), data); });
  return result(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  stream_of(stream).run([=] { function(data); });
  return result(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  auto* const made = new Event;
  made->flags = flags;
  *event = reinterpret_cast<cudaEvent_t>(made);
  return result(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  return result(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  count_call("cudaEventRecord");
  record(event_of(event), stream_of(stream));
  return result(cudaSuccess);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto moment = moment_of(event_of(event));
  return result(!moment || moment->is_done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  count_wait("cudaEventSynchronize");
  if (const auto moment = moment_of(event_of(event))) moment->is_done.wait(false);
  return result(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const auto begin = moment_of(event_of(from)), end = moment_of(event_of(to));
  if (!begin || !end) return result(cudaErrorInvalidResourceHandle);
  if (!begin->is_done || !end->is_done) return result(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return result(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return result(cudaSuccess);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  *status = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  if (graph) *graph = nullptr;
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  return result(cudaSuccess);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return result(cudaSuccess); }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return result(cudaErrorNotSupported); }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return result(cudaErrorNotSupported); }
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return result(cudaErrorNotSupported);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return result(cudaErrorNotSupported); }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return result(cudaErrorNotSupported); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return result(cudaErrorNotSupported); }
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t*) { return result(cudaErrorNotSupported); }
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned) { return result(cudaErrorNotSupported); }
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t*) {
  return result(cudaErrorNotSupported);
}

}  // extern "C"
