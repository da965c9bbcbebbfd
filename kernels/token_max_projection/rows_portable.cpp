#define TESSERA_VECTOR 4
#define TESSERA_ROWS 6
#include "kernels/token_max_projection/rows.inc.h"

namespace tessera::kernels {

const RowKernels kPortableRowKernels = {maxima, weighted_sum};

}  // namespace tessera::kernels
