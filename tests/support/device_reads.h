#pragma once

#include <atomic>
#include <string>

#include <ATen/record_function.h>

namespace tessera {

/// While an object of this class exists, it counts, in all threads, the operators that read a tensor's values back to the host. If the
/// tensors were on a GPU, each such read would wait for the GPU's queue. Reads inside fused operators or operators on lists of tensors do
/// not count. On the CPU, such operators are loops that read scalars, but on a GPU, their kernels take the scalars' addresses.
class DeviceReads {
 public:
  DeviceReads() {
    counter() = 0;
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&DeviceReads::begin, &DeviceReads::end));
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
  static int& inside() {
    thread_local int depth = 0;  // nesting depth of operators whose reads are not counted
    return depth;
  }
  static bool is_loop(const std::string& name) {
    return name.starts_with("aten::_foreach_") || name.starts_with("aten::_fused_");
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    const std::string name = function.name();
    inside() += static_cast<int>(is_loop(name));
    const bool reads = name == "aten::_local_scalar_dense" || name == "aten::nonzero" || name == "aten::equal";
    if (reads && inside() == 0) ++counter();
    return nullptr;
  }
  static void end(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
    inside() -= static_cast<int>(is_loop(function.name()));
  }

  at::CallbackHandle handle_;
};

}  // namespace tessera
