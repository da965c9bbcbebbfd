#pragma once

namespace tessera {

/// While an instance exists, marks its thread as recomputing what the step has already computed (activation checkpointing, GradCache's
/// passes). A FlopCounter counts such work separately from the model's own.
class Recomputing {
 public:
  Recomputing() { ++depth; }
  ~Recomputing() { --depth; }
  Recomputing(const Recomputing&) = delete;
  Recomputing& operator=(const Recomputing&) = delete;

  static bool now() { return depth > 0; }

 private:
  static inline thread_local int depth = 0;
};

}  // namespace tessera
