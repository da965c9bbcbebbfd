#define TESSERA_VECTOR 16
#define TESSERA_ROWS 14
#include "kernels/text_pool/pool_rows.inc.h"

namespace tessera::kernels {

const PoolRows kAvx512PoolRows = {pool_softmax, pool_softmax_backward, pool_products, pool_combine};

}  // namespace tessera::kernels
