#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include "src/training/step/batch_upload.h"

namespace tessera {

BatchUpload::BatchUpload(const at::Device& device) : device_(device) {
  if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

Batch BatchUpload::operator()(const Batch& batch) const {
  if (!stream_) return batch.to(device_);
  const c10::Stream computing = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  Batch out;
  {
    const c10::StreamGuard guard(*stream_);
    out = batch.to(device_);
  }
  c10::Event arrived(device_.type());
  arrived.record(*stream_);
  arrived.block(computing);
  // The memory belongs to the copy stream. record_stream() keeps the allocator from reusing it before the computing stream is done with it.
  for_each_tensor(out, [&](const at::Tensor& tensor) {
    if (tensor.defined() && !tensor.is_cpu()) tensor.record_stream(computing);
  });
  return out;
}

}  // namespace tessera
