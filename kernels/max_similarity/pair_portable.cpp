#define TESSERA_VECTOR 4
#define TESSERA_ROWS 6
#include "kernels/max_similarity/pair.inc.h"

namespace tessera::kernels {

const PairKernels kPortablePairKernels = {panel_floats, pair_floats, pack, forward, backward};

}  // namespace tessera::kernels
