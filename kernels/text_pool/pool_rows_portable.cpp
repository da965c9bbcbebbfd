#define TESSERA_VECTOR 4
#define TESSERA_ROWS 6
#include "kernels/text_pool/pool_rows.inc.h"

namespace tessera::kernels {

const PoolRows kPortablePoolRows = {pool_softmax, pool_softmax_backward, pool_products, pool_combine};

}  // namespace tessera::kernels
