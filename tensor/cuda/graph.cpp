#include "tensor/cuda/graph.h"

#include <mutex>
#include <utility>

#include <cuda_runtime.h>

#include "tensor/cuda/capture.h"
#include "tensor/cuda/check.h"
#include "tensor/cuda/handle.h"
#include "tensor/cuda/queue.h"
#include "tensor/error.h"

namespace penstock::tensor::cuda {

namespace {

using Captured = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy<cudaGraphDestroy>>;

// A capture of the queue's stream under way.
class Session {
 public:
  Session(Queue& queue, bool trial) : queue_(queue), lock_(queue.capture().mutex()) {
    queue_.make_current();
    // Relaxed: blocks for the graph may be allocated meanwhile, and other threads go on.
    check(cudaStreamBeginCapture(queue_.stream(), cudaStreamCaptureModeRelaxed),
          "cudaStreamBeginCapture");
    queue_.capture().begin();
    trial ? memory().begin_trial() : memory().begin();
  }
  ~Session() {
    if (!open_) return;
    Captured dropped;
    stop(dropped);
    cudaGetLastError();
    free_released();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Captured end() {
    Captured graph;
    const cudaError_t status = stop(graph);
    const bool lost_memory = free_released();
    check(status, "cudaStreamEndCapture");
    if (lost_memory) {
      throw InternalError(
          "[graphs] memory that the graph would go on using was released while it was captured");
    }
    return graph;
  }

 private:
  GraphMemory& memory() { return queue_.capture().memory(); }

  cudaError_t stop(Captured& graph) {
    open_ = false;
    cudaGraph_t captured = nullptr;
    const cudaError_t status = cudaStreamEndCapture(queue_.stream(), &captured);
    graph.reset(captured);
    queue_.capture().end();
    memory().end();
    return status;
  }

  // Now that it would not become a part of the graph. True when there was anything.
  bool free_released() {
    const std::vector<void*> blocks = std::exchange(queue_.capture().released(), {});
    for (void* block : blocks) cudaFreeAsync(block, queue_.stream());
    return !blocks.empty();
  }

  Queue& queue_;
  std::lock_guard<std::recursive_mutex> lock_;
  bool open_ = true;
};

}  // namespace

void Capture::begin_watching() {
  watching_ = true;
  reason_.clear();
}

std::string Capture::end_watching() noexcept {
  watching_ = false;
  return std::move(reason_);
}

void Capture::refuse(const char* what) {
  if (watching_) {
    if (reason_.empty()) reason_ = what;
    return;
  }
  throw Unsupported(std::string("[graphs] what is being captured into a CUDA graph ") + what +
                    ", which no graph can do again, and which it did not do when it ran before");
}

Graph::Graph(std::shared_ptr<Queue> queue, void* executable)
    : queue_(std::move(queue)), executable_(executable) {}

// One that is at work is freed by the driver when it is done.
Graph::~Graph() {
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
}

void Graph::launch() {
  queue_->make_current();
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), queue_->stream()),
        "cudaGraphLaunch");
}

std::unique_ptr<Graph> capture(Allocator& memory, const std::function<void()>& work) {
  std::shared_ptr<Queue> queue = shared_queue(memory);
  Captured graph;
  try {
    for (const bool trial : {true, false}) {
      Session session(*queue, trial);
      work();
      graph = session.end();
    }
  } catch (const DeviceError& error) {
    throw DeviceError(std::string("[graphs] a CUDA graph could not be captured: ") + error.what());
  }
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
  return std::make_unique<Graph>(std::move(queue), executable);
}

std::string run_watched(Allocator& memory, const std::function<void()>& work) {
  const std::shared_ptr<Queue> queue = shared_queue(memory);
  struct Watch {
    explicit Watch(Capture& of) : capture(of) { capture.begin_watching(); }
    ~Watch() { capture.end_watching(); }
    Capture& capture;
  };
  const Watch watch(queue->capture());
  work();
  return watch.capture.end_watching();
}

ForGraphs::ForGraphs(Allocator& memory) : queue_(shared_queue(memory)) {
  queue_->capture().set_for_graphs(true);
}

ForGraphs::~ForGraphs() {
  queue_->capture().set_for_graphs(false);
}

bool is_graph_memory(const Allocator& memory, const void* block) {
  return shared_queue(memory)->capture().memory().contains(block);
}

std::int64_t graph_bytes(const Allocator& memory) {
  return shared_queue(memory)->capture().memory().bytes();
}

}  // namespace penstock::tensor::cuda
