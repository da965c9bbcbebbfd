#pragma once

#include "src/base/half_cosine.h"
#include <tessera/config/fields.h>
#include <tessera/objectives/objective.h>

namespace tessera {

/// The momentum schedule of a teacher, which is a moving average of the model.
struct TeacherMomentum {
  double start = 0.996;
  double end = 1.0;

  double at(const StepContext& step) const { return half_cosine(step.step, step.total_steps, start, end); }
};

void fields(auto& v, TeacherMomentum& s) {
  v("teacher_momentum", s.start, "momentum of the teacher's moving average at the run's first update",
    config::in_range(0, 1));
  v("teacher_momentum_end", s.end, "the momentum at the run's end, reached by half a cosine", config::in_range(0, 1));
}

}  // namespace tessera
