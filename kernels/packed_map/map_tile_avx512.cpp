#define TESSERA_VECTOR 16
#define TESSERA_ROWS 14
#include "kernels/packed_map/map_tile.inc.h"

namespace tessera::kernels {

const MapKernels kAvx512MapKernels = kMapKernels;

}  // namespace tessera::kernels
