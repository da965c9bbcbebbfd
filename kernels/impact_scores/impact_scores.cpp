#include "kernels/impact_scores/impact_scores.h"

#include "kernels/cpu/instruction_set.h"

namespace tessera::kernels {

const ImpactScoreKernels& impact_score_kernels() {
#if defined(TESSERA_X86_KERNELS)
  switch (instruction_set()) {
    case InstructionSet::kAvx512:
      return kAvx512ImpactScores;
    case InstructionSet::kAvx2:
      return kAvx2ImpactScores;
    case InstructionSet::kPortable:
      break;
  }
#endif
  return kPortableImpactScores;
}

}  // namespace tessera::kernels
