#include "nearest_patch.h"
#include <tessera/training/trainer_main.h>

int main(int argc, char** argv) {
  tessera::objectives().add<NearestPatchSettings>(
      "nearest_patch", "CLIP's contrast plus the distance of words to their nearest patch",
      [](const NearestPatchSettings& settings, const tessera::ObjectiveContext& context) {
        return std::make_shared<NearestPatch>(settings, context);
      });
  return tessera::trainer_main(argc, argv);
}
