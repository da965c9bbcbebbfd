#pragma once

#include "src/objectives/dino.h"

namespace tessera {

/// DINO with the defaults of SILC (Naeem et al. 2023), TIPS (Maninis et al. 2024) and SigLIP 2 (Tschannen et al. 2025), which train
/// DINO together with an image-text contrast. The teacher sees one large crop, the student only small crops.
struct SelfDistillationSettings : DinoSettings {
  SelfDistillationSettings() {
    global_crops = 1;
    student_global_crops = false;
    momentum = kMomentum;
  }
  /// SILC's momentum. It is constant, because a teacher whose momentum rises to 1 would stop learning from the texts.
  static constexpr TeacherMomentum kMomentum = {0.966, 0.966};
};

template <class Visitor>
void fields(Visitor& v, SelfDistillationSettings& s) {
  fields(v, static_cast<DinoSettings&>(s));
}

}  // namespace tessera
