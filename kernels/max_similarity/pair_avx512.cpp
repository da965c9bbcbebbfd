#define TESSERA_VECTOR 16
#define TESSERA_ROWS 14
#include "kernels/max_similarity/pair.inc.h"

namespace tessera::kernels {

const PairKernels kAvx512PairKernels = {panel_floats, pair_floats, pack, forward, backward};

}  // namespace tessera::kernels
