#pragma once

#include <atomic>
#include <string>

#include <ATen/record_function.h>

namespace tessera {

/// Counts, while it lives, the operators of all threads that read a tensor's values back: each waits for a GPU's queue,
/// and would if the tensors lay there.
class DeviceReads {
 public:
  DeviceReads() {
    counter() = 0;
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&DeviceReads::note));
  }
  ~DeviceReads() { at::removeCallback(handle_); }
  DeviceReads(const DeviceReads&) = delete;
  DeviceReads& operator=(const DeviceReads&) = delete;

  int count() const { return counter(); }

 private:
  static std::atomic<int>& counter() {
    static std::atomic<int> count;
    return count;
  }
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    const std::string name = function.name();
    if (name == "aten::_local_scalar_dense" || name == "aten::nonzero" || name == "aten::equal") ++counter();
    return nullptr;
  }

  at::CallbackHandle handle_;
};

}  // namespace tessera
