// Captured graphs of the emulated runtime: the operations of one stream, queued again as they were.
#include <algorithm>
#include <memory>

#include <cuda_runtime.h>

#include "tests/cuda_emulation/call.h"

namespace emulation = penstock::cuda_emulation;

namespace {

using emulation::call;
using emulation::Executable;
using emulation::give_back;
using emulation::Graph;
using emulation::is_usable;
using emulation::Lock;
using emulation::Machine;

constexpr const char* kGraph = "CUDA graph";
constexpr const char* kExecutable = "executable CUDA graph";

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return call([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream)) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return emulation::break_capture(*stream);
    stream->capture = std::make_unique<Graph>();
    stream->capture_broken = false;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  return call([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream)) return cudaErrorInvalidResourceHandle;
    if (stream->capture == nullptr) return cudaErrorInvalidValue;
    const std::unique_ptr<Graph> captured = std::move(stream->capture);
    if (stream->capture_broken) return cudaErrorStreamCaptureInvalidated;
    *graph = new Graph(*captured);
    ++machine.counters().graph_captures;
    ++machine.objects()[kGraph];
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream)) return cudaErrorInvalidResourceHandle;
    *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
              : stream->capture_broken   ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return call([&](Machine& machine, Lock&) {
    *executable = new Executable{*graph};
    ++machine.objects()[kExecutable];
    return cudaSuccess;
  });
}

// What a graph touches must live when it is launched, as for operations that are queued singly.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream)) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return emulation::break_capture(*stream);
    ++machine.counters().graph_launches;
    for (const auto& operation : executable->operations) machine.enqueue(*stream, operation);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return call([&](Machine&, Lock&) {
    const std::size_t all = graph->operations.size();
    if (nodes == nullptr) {
      *count = all;
      return cudaSuccess;
    }
    *count = std::min(*count, all);
    for (std::size_t i = 0; i < *count; ++i) nodes[i] = graph->operations[i].get();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return give_back([&](Machine& machine, Lock&) {
    delete graph;
    --machine.objects()[kGraph];
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return give_back([&](Machine& machine, Lock&) {
    delete executable;
    --machine.objects()[kExecutable];
    return cudaSuccess;
  });
}
