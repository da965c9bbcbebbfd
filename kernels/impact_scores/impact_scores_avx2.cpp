#include "kernels/impact_scores/bitmaps.inc.h"

namespace tessera::kernels {

const ImpactScoreKernels kAvx2ImpactScores = {add_list<std::uint8_t>,   add_list<std::uint16_t>,
                                              add_bitmap<std::uint8_t>, add_bitmap<std::uint16_t>,
                                              count_at_least,           take_at_least};

}  // namespace tessera::kernels
