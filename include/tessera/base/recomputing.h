#pragma once

namespace tessera {

/// Marks the thread that owns it as recomputing what the step has already computed (activation checkpointing, GradCache's passes),
/// as long as the instance exists. A FlopCounter counts such work separately from the model's own.
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
