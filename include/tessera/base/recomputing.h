#pragma once

namespace tessera {

/// While one lives, its thread computes again what the step has computed before (activation checkpointing, GradCache's
/// passes). A FlopCounter keeps such work apart from the model's own.
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
