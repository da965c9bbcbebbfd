#pragma once

#include <cstdint>
#include <unordered_map>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Copies of float32 parameters in bfloat16, for autocast. The optimizer's update writes them together with the parameters, which saves
/// autocast's casts. A copy is used only if the parameter has the version (Tensor::_version) that was copied, so whatever else changes a
/// parameter (loading, a swap with averages) needs no code here.
class WeightCopies {
 public:
  /// While a scope exists, autocast_copy() in its thread uses the copies. Does nothing if `copies` is null. refresh() must have been called
  /// since the parameters last changed; a recorded step refreshes before it is replayed.
  class Scope {
   public:
    explicit Scope(WeightCopies* copies);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    WeightCopies* outer_;
  };

  /// Returns the parameter in bfloat16, with the parameter's gradient as that of a cast. Returns an undefined tensor outside a scope, and
  /// for a tensor that is no trained float32 parameter or is used without gradients. Uses of one parameter share a result until
  /// forget_casts(), as in autocast's cache, whose results end with autocast.
  static at::Tensor cast(const at::Tensor& parameter);
  static void forget_casts();

  /// Casts the parameters that have changed since they were copied.
  void refresh();
  /// Returns the copy that an update of the parameter has to write; undefined if there is none. All copies that updates write exist before
  /// the first call, so a recorded update writes the same copies as later ones.
  at::Tensor written_by_updates(const at::Tensor& parameter);
  /// States that an update has written the parameter's copy.
  void mark_written(const at::Tensor& parameter);

 private:
  struct Entry {
    at::Tensor parameter, copy;
    std::int64_t version = -1;
    bool by_updates = true;
    at::Tensor cast;  // the result of cast(); undefined if there is none
  };
  std::unordered_map<const c10::TensorImpl*, Entry> entries_;
  bool complete_ = false;  // whether written_by_updates() has been called
};

}  // namespace tessera
