#define TESSERA_VECTOR 8
#define TESSERA_ROWS 6
#include "kernels/packed_map/map_tile.inc.h"

namespace tessera::kernels {

const MapKernels kAvx2MapKernels = kMapKernels;

}  // namespace tessera::kernels
