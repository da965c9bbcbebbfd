#include "src/training/step/step_graph.h"
#include <tessera/base/error.h>

#ifdef TESSERA_HAS_CUDA_GRAPHS
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace tessera {

#ifdef TESSERA_HAS_CUDA_GRAPHS
namespace {

class CudaRecorder : public WorkRecorder {
 public:
  // Uses a stream from the pool, because the legacy default stream cannot be recorded.
  CudaRecorder() : stream_(at::cuda::getStreamFromPool()) {}

  void rehearse(const std::function<void()>& work) override {
    follow(stream_, at::cuda::getCurrentCUDAStream());
    {
      const c10::cuda::CUDAStreamGuard here(stream_);
      work();
    }
    follow(at::cuda::getCurrentCUDAStream(), stream_);
  }

  void record(const std::function<void()>& work) override {
    follow(stream_, at::cuda::getCurrentCUDAStream());
    const c10::cuda::CUDAStreamGuard here(stream_);
    // A recording allocates from its own memory pool, so it cannot reuse memory that the rehearsals left in the allocator's cache. Emptying
    // the cache frees this memory.
    stream_.synchronize();
    at::accelerator::emptyCache();
    // All recordings share the first one's pool. They never run at the same time, and nobody reads a tensor of one after the replay of
    // another one. So they need only as much memory as the largest of them, and what outlives them.
    const at::cuda::MempoolId_t pool = graphs_.empty() ? at::cuda::MempoolId_t{0, 0} : graphs_.front()->pool();
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    // A process-wide capture mode would make other threads' allocations of pinned memory fail during the capture, so the mode is per
    // thread.
    graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      try {
        graph->capture_end();
      } catch (const c10::Error&) {
        // Ignores errors of capture_end(), because the exception of `work` explains the cause better. This exception is rethrown below.
      }
      throw;
    }
    graph->capture_end();
    graphs_.push_back(std::move(graph));
  }

  void replay(std::size_t recording) override { graphs_.at(recording)->replay(); }

 private:
  // Work that is queued on `later` after this call waits for the work that is already queued on `earlier`.
  static void follow(const at::cuda::CUDAStream& later, const at::cuda::CUDAStream& earlier) {
    at::cuda::CUDAEvent event;
    event.record(earlier);
    event.block(later);
  }

  at::cuda::CUDAStream stream_;
  std::vector<std::unique_ptr<at::cuda::CUDAGraph>> graphs_;
};

}  // namespace

std::unique_ptr<WorkRecorder> make_cuda_recorder() {
  if (!at::hasCUDA()) user_error("training.cuda_graph needs a GPU, and LibTorch sees none here: set it to false");
  return std::make_unique<CudaRecorder>();
}
#else
std::unique_ptr<WorkRecorder> make_cuda_recorder() {
  user_error("training.cuda_graph: this Tessera was built without CUDA: set it to false");
}
#endif

}  // namespace tessera
