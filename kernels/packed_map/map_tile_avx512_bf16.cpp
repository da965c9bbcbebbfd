#define TESSERA_VECTOR 16
#define TESSERA_ROWS 14
#define TESSERA_BFLOAT16_OPERANDS
#include "kernels/packed_map/map_tile.inc.h"

namespace tessera::kernels {

const MapKernels kAvx512Bfloat16MapKernels = kMapKernels;

}  // namespace tessera::kernels
