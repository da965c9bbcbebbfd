#pragma once

#include <optional>

#include <c10/core/Stream.h>

#include <tessera/batch.h>

namespace tessera {

/// Brings batches to a device. To a GPU they travel on a stream of their own, from page-locked memory while the steps
/// before are still computed; what is given to the current stream afterwards waits for them. On the CPU: the batch
/// itself.
class BatchUpload {
 public:
  explicit BatchUpload(const at::Device& device);

  /// Does not wait for the device.
  Batch operator()(const Batch& batch) const;

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // none: on the CPU
};

}  // namespace tessera
