#define TESSERA_VECTOR 8
#define TESSERA_ROWS 6
#include "kernels/token_max_projection/rows.inc.h"

namespace tessera::kernels {

const RowKernels kAvx2RowKernels = {maxima, weighted_sum};

}  // namespace tessera::kernels
