#include "src/base/host.h"
#include "src/distributed/connection.h"
#include <tessera/base/error.h>

#ifdef TESSERA_HAS_NCCL
#include <ATen/cuda/CUDAContext.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace tessera {

#ifdef TESSERA_HAS_NCCL
BackendPointer make_nccl(const c10::intrusive_ptr<c10d::Store>& store, const LaunchEnvironment& environment,
                         const at::Device& device, std::chrono::milliseconds timeout) {
  const cudaDeviceProp& gpu = *at::cuda::getDeviceProperties(device.index());
  claim_gpu(*store, concat(machine_name(), '/', gpu.pciDomainID, ':', gpu.pciBusID, ':', gpu.pciDeviceID), environment);
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, environment.rank, environment.size, options);
}
#else
BackendPointer make_nccl(const c10::intrusive_ptr<c10d::Store>&, const LaunchEnvironment&, const at::Device&,
                         std::chrono::milliseconds) {
  return {};
}
#endif

}  // namespace tessera
