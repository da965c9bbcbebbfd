#pragma once

#include <optional>

#include <c10/core/Stream.h>

#include <tessera/batch.h>

namespace tessera {

/// Copies batches to a device. For a GPU, the copy runs on a separate stream, from page-locked memory, while earlier steps are
/// still being computed; work that is queued on the current stream afterwards waits for the copy. For the CPU, it returns the batch
/// itself.
class BatchUpload {
 public:
  explicit BatchUpload(const at::Device& device);

  /// Returns the batch on the device, without waiting for the device.
  Batch operator()(const Batch& batch) const;

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // nullopt on the CPU
};

}  // namespace tessera
