#define TESSERA_VECTOR 16
#define TESSERA_ROWS 14
#include "kernels/token_max_projection/rows.inc.h"

namespace tessera::kernels {

const RowKernels kAvx512RowKernels = {maxima, weighted_sum};

}  // namespace tessera::kernels
